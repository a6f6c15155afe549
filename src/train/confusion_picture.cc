#include "train/confusion_picture.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "train/bitmap_font.h"

namespace passel {
namespace {

struct Colour {
  double r, g, b;  // 0..255
};
constexpr Colour kPaper{255, 255, 255}, kInk{30, 30, 30}, kFaint{190, 190, 190};
constexpr Colour kGrid{225, 225, 225}, kHit{8, 69, 148}, kError{179, 24, 18};

constexpr std::size_t kMostNumbered = 32;  // classes whose cells bear numbers

class Canvas {
 public:
  Canvas(std::size_t width, std::size_t height) {
    picture_.width = width;
    picture_.height = height;
    picture_.pixels.assign(width * height * 3, 255);
  }

  void Fill(std::size_t x, std::size_t y, std::size_t width, std::size_t height, Colour colour) {
    const std::size_t right = std::min(x + width, picture_.width);
    const std::size_t bottom = std::min(y + height, picture_.height);
    for (; y < bottom; ++y) {
      for (std::size_t i = x; i < right; ++i) {
        std::uint8_t* const p = &picture_.pixels[(y * picture_.width + i) * 3];
        p[0] = static_cast<std::uint8_t>(colour.r);
        p[1] = static_cast<std::uint8_t>(colour.g);
        p[2] = static_cast<std::uint8_t>(colour.b);
      }
    }
  }

  void Text(std::size_t x, std::size_t y, const std::string& text, std::size_t scale,
            Colour colour) {
    for (const char c : text) {
      for (std::size_t row = 0; row < kGlyphHeight; ++row) {
        for (std::size_t column = 0; column < kGlyphWidth; ++column) {
          if ((Glyph(c)[row] >> (kGlyphWidth - 1 - column) & 1) == 0) continue;
          Fill(x + column * scale, y + row * scale, scale, scale, colour);
        }
      }
      x += (kGlyphWidth + 1) * scale;
    }
  }

  static std::size_t TextWidth(std::size_t characters, std::size_t scale) {
    return characters == 0 ? 0 : (characters * (kGlyphWidth + 1) - 1) * scale;
  }

  // In the middle of a box.
  void Centre(std::size_t x, std::size_t y, std::size_t width, std::size_t height,
              const std::string& text, std::size_t scale, Colour colour) {
    const std::size_t w = TextWidth(text.size(), scale), h = kGlyphHeight * scale;
    Text(x + (width - std::min(w, width)) / 2, y + (height - std::min(h, height)) / 2, text, scale,
         colour);
  }

  RgbPicture Take() { return std::move(picture_); }

 private:
  RgbPicture picture_;
};

Colour Mix(Colour from, Colour to, double share) {
  return {from.r + (to.r - from.r) * share, from.g + (to.g - from.g) * share,
          from.b + (to.b - from.b) * share};
}

std::string Percent(const std::optional<double>& share) {
  return share ? fmt::format("{:.1f}%", 100 * *share) : "-";
}

// Places and sizes, in pixels.
struct Geometry {
  bool numbered;
  std::size_t scale = 2;
  std::size_t columns;  // of cells: the classes, and one for what is undecided
  std::size_t cell_width, cell_height;
  std::size_t left, top;  // of the cells
  std::size_t share_width;
  std::size_t width, height;

  Geometry(const ConfusionMatrix& m, std::size_t title_length) {
    numbered = m.classes() <= kMostNumbered;
    columns = m.classes() + (m.undecided() > 0 ? 1 : 0);
    const std::size_t digits = std::max<std::size_t>(4, fmt::format("{}", m.total()).size());
    const std::size_t line = kGlyphHeight * scale;
    // "100.0%" below a column of its own width.
    cell_width = numbered ? Canvas::TextWidth(std::max<std::size_t>(digits, 6), scale) + 12 : 8;
    cell_height = numbered ? line + 22 : 8;
    left = Canvas::TextWidth(9, scale) + 20;
    top = 3 * line + 44;
    share_width = numbered ? Canvas::TextWidth(6, scale) + 20 : 16;
    width = std::max(left + columns * cell_width + share_width,
                     Canvas::TextWidth(title_length, scale) + 24);
    height = top + m.classes() * cell_height + (numbered ? cell_height : 0) + 12;
  }
  std::size_t X(std::size_t column) const { return left + column * cell_width; }
  std::size_t Y(std::size_t label) const { return top + label * cell_height; }
};

void DrawCell(const ConfusionMatrix& m, const Geometry& g, std::size_t label, std::size_t column,
              Canvas* canvas) {
  const std::uint64_t count = m.count(label, column);
  const std::uint64_t of = m.labelled(label);
  const double share =
      of == 0 ? 0 : std::sqrt(static_cast<double>(count) / static_cast<double>(of));
  const Colour shade = Mix(kPaper, label == column ? kHit : kError, share);
  const std::size_t x = g.X(column), y = g.Y(label);
  canvas->Fill(x, y, g.cell_width, g.cell_height, kGrid);
  canvas->Fill(x, y, g.cell_width - 1, g.cell_height - 1, shade);
  if (!g.numbered) return;
  const bool dark = 0.299 * shade.r + 0.587 * shade.g + 0.114 * shade.b < 140;
  canvas->Centre(x, y, g.cell_width, g.cell_height, fmt::format("{}", count), g.scale,
                 count == 0 ? kFaint
                 : dark     ? kPaper
                            : kInk);
}

}  // namespace

RgbPicture DrawConfusionMatrix(const ConfusionMatrix& m, const std::string& title) {
  const Geometry g(m, title.size());
  Canvas canvas(g.width, g.height);
  const std::size_t line = kGlyphHeight * g.scale;
  canvas.Text(12, 12, title, g.scale, kInk);
  canvas.Text(g.left, line + 24, "predicted", g.scale, kInk);
  canvas.Text(12, 2 * line + 34, "label", g.scale, kInk);
  const std::size_t every = g.numbered ? 1 : 8;
  for (std::size_t c = 0; c < m.classes(); c += every) {
    const std::string name = fmt::format("{}", c);
    canvas.Centre(g.X(c), 2 * line + 34, g.cell_width * every, line, name, g.scale, kInk);
    canvas.Centre(12, g.Y(c), g.left - 24, g.cell_height * (g.numbered ? 1 : 2), name, g.scale,
                  kInk);
  }
  if (g.columns > m.classes() && g.numbered) {
    canvas.Centre(g.X(m.classes()), 2 * line + 34, g.cell_width, line, "none", g.scale, kInk);
  }
  for (std::size_t label = 0; label < m.classes(); ++label) {
    for (std::size_t column = 0; column < g.columns; ++column) {
      DrawCell(m, g, label, column, &canvas);
    }
  }
  if (!g.numbered) return canvas.Take();
  const std::size_t right = g.X(g.columns), below = g.Y(m.classes());
  canvas.Centre(right, 2 * line + 34, g.share_width, line, "recall", g.scale, kInk);
  canvas.Centre(0, below, g.left, g.cell_height, "precision", g.scale, kInk);
  for (std::size_t c = 0; c < m.classes(); ++c) {
    canvas.Centre(right, g.Y(c), g.share_width, g.cell_height, Percent(m.Recall(c)), g.scale, kInk);
    canvas.Centre(g.X(c), below, g.cell_width, g.cell_height, Percent(m.Precision(c)), g.scale,
                  kInk);
  }
  return canvas.Take();
}

}  // namespace passel
