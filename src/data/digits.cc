// Compiled with -ffp-contract=off (see CMakeLists.txt), and free of libm: digits.h promises the
// same bytes everywhere.

#include "data/digits.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <memory>
#include <new>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/random.h"
#include "data/idx.h"

namespace passel {
namespace {

// --- How each digit is written -------------------------------------------------------------------
// A glyph lives in the unit square, x to the right, y down. A stroke is drawn without lifting the
// pen, as a smooth curve through its points or as straight lines between them.

struct Point {
  double x, y;
};

struct Stroke {
  bool smooth;
  std::vector<Point> points;
};

using Glyph = std::vector<Stroke>;

// The strokes of a glyph, each "~" (a smooth curve) or "-" (straight lines) and its points in
// hundredths: "- 30,24 53,0 53,100".
Glyph ParseGlyph(const std::string& text) {
  Glyph glyph;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (word == "~" || word == "-") {
      glyph.push_back({word == "~", {}});
    } else {
      const int x = std::stoi(word), y = std::stoi(word.substr(word.find(',') + 1));
      glyph.back().points.push_back({x / 100.0, y / 100.0});  // exactly rounded, as .24 is
    }
  }
  return glyph;
}

const std::array<std::vector<Glyph>, 10>& Glyphs() {
  static const std::array<std::vector<Glyph>, 10> glyphs = [] {
    const std::vector<std::string> texts[10] = {
        // 0: a round one; a narrow one whose ends cross at the top
        {"~ 50,0 24,14 13,50 24,86 50,100 76,86 87,50 76,14 46,1",
         "~ 62,4 36,8 18,50 30,90 54,98 78,76 80,36 62,6 42,10"},
        // 1: a bar; with a flag; with flag and foot
        {"- 50,0 50,100", "- 30,24 53,0 53,100", "- 30,22 53,0 53,100 - 28,100 78,100"},
        // 2: straight foot; with a loop in the lower corner
        {"~ 18,25 30,5 56,0 78,15 76,38 50,68 17,100 - 17,100 86,98",
         "~ 20,20 42,0 72,10 74,38 52,72 26,96 13,88 28,77 50,90 70,100 90,90"},
        // 3: two bows; a flat top
        {"~ 20,10 50,0 78,12 74,36 45,47 ~ 45,47 80,58 82,85 50,100 17,88",
         "- 20,2 80,0 45,42 ~ 45,42 76,50 83,74 58,98 17,90"},
        // 4: open, of straight lines; closed; open, with a round corner
        {"- 30,0 14,58 88,56 - 68,6 64,100", "- 65,100 65,0 12,68 90,68",
         "~ 20,4 17,38 36,54 76,44 - 78,0 72,100"},
        // 5: in one go; the top bar apart, and slanted
        {"- 80,0 28,1 22,45 ~ 22,45 50,36 80,50 80,82 50,100 17,90",
         "~ 32,5 26,42 52,42 78,62 70,90 42,100 15,88 - 32,5 85,0"},
        // 6: a bent stem; a steep stem and a small loop
        {"~ 70,0 40,20 20,55 22,85 48,100 76,86 75,62 50,50 24,68",
         "~ 50,0 28,40 20,76 42,100 70,93 73,70 50,60 24,76"},
        // 7: plain; with a cross-bar; with a serif and a bent stem
        {"- 15,2 85,0 40,100", "- 15,0 85,2 42,100 - 34,52 80,48",
         "- 15,18 17,2 84,2 ~ 84,2 58,42 44,100"},
        // 8: in one go; two loops
        {"~ 76,14 46,0 22,18 40,42 68,62 77,84 50,100 22,85 32,62 62,42 78,20 60,3",
         "~ 50,46 26,30 30,7 50,0 70,7 74,30 50,46 ~ 50,46 20,62 20,88 50,100 80,88 80,62 "
         "50,46"},
        // 9: a straight stem; a bent tail
        {"~ 76,18 55,1 28,8 20,32 42,50 68,40 76,16 - 76,14 70,100",
         "~ 78,22 50,0 22,15 26,42 55,48 77,24 76,60 60,92 30,100"},
    };
    std::array<std::vector<Glyph>, 10> parsed;
    for (std::size_t digit = 0; digit < parsed.size(); ++digit) {
      std::ranges::transform(texts[digit], std::back_inserter(parsed[digit]), ParseGlyph);
    }
    return parsed;
  }();
  return glyphs;
}

// --- Random numbers without libm -----------------------------------------------------------------

double Between(Random& random, double low, double high) {
  return low + (high - low) * random.Uniform();
}

// Nearly normal, mean 0, variance 1, within +-3.47: a sum of four uniform numbers.
double Bell(Random& random) {
  double sum = random.Uniform();
  for (int i = 0; i < 3; ++i) sum += random.Uniform();
  return (sum - 2.0) * 1.7320508075688772;
}

// --- One person's hand ---------------------------------------------------------------------------

// How hard the set is. Changing any of these changes every image: raise kDigitsVersion.
constexpr double kJitter = 0.028;    // of each point, in glyph units
constexpr double kHalfTurn = 0.068;  // tan(angle / 2)
constexpr double kSlant = 0.19;      // horizontal shear, per unit of height
constexpr double kWave = 0.044;      // bending of the whole glyph, in glyph units
constexpr double kShift = 0.90;      // pixels
constexpr double kMinHeight = 17.0, kMaxHeight = 21.0;  // pixels
constexpr double kMinAspect = 0.68, kMaxAspect = 1.0;   // width / height of the unit square
constexpr double kMinPen = 0.70, kMaxPen = 1.65;        // half the stroke's width, pixels

// Maps glyph units to pixels: bend, then scale, shear, rotate, shift.
class Hand {
 public:
  explicit Hand(Random& random) {
    for (double& c : bend_x_) c = kWave * Bell(random);
    for (double& c : bend_y_) c = kWave * Bell(random);
    const double height = Between(random, kMinHeight, kMaxHeight);
    const double width = height * Between(random, kMinAspect, kMaxAspect);
    const double slant = kSlant * Bell(random) + 0.08;  // most people lean to the right
    const double t = kHalfTurn * Bell(random);
    const double cosine = (1.0 - t * t) / (1.0 + t * t);
    const double sine = 2.0 * t / (1.0 + t * t);
    xx_ = cosine * width;
    xy_ = -cosine * slant * height - sine * height;
    yx_ = sine * width;
    yy_ = cosine * height - sine * slant * height;
    shift_x_ = 13.5 + kShift * Bell(random);
    shift_y_ = 13.5 + kShift * Bell(random);
  }

  Point operator()(Point p) const {
    // Chebyshev polynomials of both coordinates on [-1, 1]: smooth bends of the whole glyph.
    const double u = 2.0 * p.x - 1.0, v = 2.0 * p.y - 1.0;
    const double u2 = 2.0 * u * u - 1.0, v2 = 2.0 * v * v - 1.0;
    const double v3 = v * (4.0 * v * v - 3.0);
    const double x = p.x - 0.5 + bend_x_[0] * v2 + bend_x_[1] * v3 + bend_x_[2] * u * v;
    const double y = p.y - 0.5 + bend_y_[0] * u2 + bend_y_[1] * v2 + bend_y_[2] * u * v;
    return {shift_x_ + xx_ * x + xy_ * y, shift_y_ + yx_ * x + yy_ * y};
  }

 private:
  double bend_x_[3], bend_y_[3];
  double xx_, xy_, yx_, yy_, shift_x_, shift_y_;
};

// Catmull-Rom: the cubic from b to c whose neighbours are a and d, at t in [0, 1].
Point OnCurve(Point a, Point b, Point c, Point d, double t) {
  const auto mix = [t](double p, double q, double r, double s) {
    return 0.5 * (2.0 * q + t * ((r - p) + t * ((2.0 * p - 5.0 * q + 4.0 * r - s) +
                                                t * (3.0 * (q - r) + s - p))));
  };
  return {mix(a.x, b.x, c.x, d.x), mix(a.y, b.y, c.y, d.y)};
}

// For every pixel, how far it lies outside the nearest stroke (negative: inside), in pixels.
class Canvas {
 public:
  Canvas() { outside_.fill(kFar); }

  // A stroke from a to b whose half width goes from pen_a to pen_b.
  void Segment(Point a, Point b, double pen_a, double pen_b) {
    const double reach = std::max(pen_a, pen_b) + kFar;
    const int x0 = Clip(std::min(a.x, b.x) - reach), x1 = Clip(std::max(a.x, b.x) + reach);
    const int y0 = Clip(std::min(a.y, b.y) - reach), y1 = Clip(std::max(a.y, b.y) + reach);
    const double dx = b.x - a.x, dy = b.y - a.y;
    const double length2 = dx * dx + dy * dy;
    const double inverse = length2 > 0 ? 1.0 / length2 : 0.0;
    for (int y = y0; y <= y1; ++y) {
      for (int x = x0; x <= x1; ++x) {
        const double px = x - a.x, py = y - a.y;
        const double t = std::clamp((px * dx + py * dy) * inverse, 0.0, 1.0);
        const double ex = px - t * dx, ey = py - t * dy;
        const double outside = std::sqrt(ex * ex + ey * ey) - (pen_a + t * (pen_b - pen_a));
        double& cell = outside_[static_cast<std::size_t>(y) * kDigitSide + x];
        cell = std::min(cell, outside);
      }
    }
  }

  double outside(std::size_t pixel) const { return outside_[pixel]; }

 private:
  static constexpr double kFar = 2.0;
  static int Clip(double coordinate) {
    return static_cast<int>(std::clamp(coordinate, 0.0, kDigitSide - 1.0));
  }
  std::array<double, kDigitPixels> outside_;
};

// --- Files ---------------------------------------------------------------------------------------

std::array<std::byte, 16> BigEndianHeader(std::array<std::uint32_t, 4> words) {
  std::array<std::byte, 16> bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(words[i / 4] >> (24 - 8 * (i % 4)));
  }
  return bytes;
}

// Draws one set and writes its two files.
Status WriteSet(const std::string& dir, DigitSet set, std::uint32_t count, std::uint64_t seed) {
  const std::size_t bytes = std::size_t{count} * (kDigitPixels + 1);
  const std::unique_ptr<std::uint8_t[]> memory(new (std::nothrow) std::uint8_t[bytes]);
  if (memory == nullptr) {
    return ResourceExhausted(
        fmt::format("{} generated digits need {} bytes of memory: ask for fewer", count, bytes));
  }
  const std::span<std::uint8_t> images(memory.get(), std::size_t{count} * kDigitPixels);
  const std::span<std::uint8_t> labels(memory.get() + images.size(), count);

  const unsigned workers = std::clamp(std::thread::hardware_concurrency(), 1u, 64u);
  const auto draw = [&](unsigned worker) {
    const std::uint64_t begin = std::uint64_t{count} * worker / workers;
    const std::uint64_t end = std::uint64_t{count} * (worker + 1) / workers;
    for (std::uint64_t i = begin; i < end; ++i) {
      labels[i] = DrawDigit(seed, set, i, images.subspan(i * kDigitPixels).first<kDigitPixels>());
    }
  };
  {
    std::vector<std::jthread> threads;  // joined at the end of this scope
    for (unsigned worker = 1; worker < workers; ++worker) {
      try {
        threads.emplace_back(draw, worker);
      } catch (const std::system_error&) {  // no thread to be had: slower, but the same images
        draw(worker);
      }
    }
    draw(0);
  }

  const std::size_t first_name = set == DigitSet::kTrain ? 0 : 2;
  const auto image_header = BigEndianHeader({2051, count, kDigitSide, kDigitSide});
  const std::span<const std::byte> image_pieces[] = {image_header, std::as_bytes(images)};
  PASSEL_RETURN_IF_ERROR(
      WriteFileAtomically(fmt::format("{}/{}", dir, kIdxFileNames[first_name]), image_pieces));
  const auto label_header = BigEndianHeader({2049, count, 0, 0});
  const std::span<const std::byte> label_pieces[] = {std::span(label_header).first(8),
                                                     std::as_bytes(labels)};
  return WriteFileAtomically(fmt::format("{}/{}", dir, kIdxFileNames[first_name + 1]),
                             label_pieces);
}

}  // namespace

std::uint8_t DrawDigit(std::uint64_t seed, DigitSet set, std::uint64_t index,
                       std::span<std::uint8_t, kDigitPixels> pixels) {
  Random random(StreamSeed(seed, static_cast<std::uint64_t>(set), index));
  const auto label = static_cast<std::uint8_t>(random.Below(10));
  const std::vector<Glyph>& styles = Glyphs()[label];
  const Glyph& glyph = styles[random.Below(styles.size())];
  const Hand hand(random);
  const double pen = Between(random, kMinPen, kMaxPen);

  Canvas canvas;
  std::array<Point, 16> points;
  for (const Stroke& stroke : glyph) {
    const std::size_t count = stroke.points.size();
    PASSEL_CHECK(count >= 2 && count <= points.size(), "a stroke has 2 to 16 points");
    for (std::size_t i = 0; i < count; ++i) {
      points[i].x = stroke.points[i].x + kJitter * Bell(random);
      points[i].y = stroke.points[i].y + kJitter * Bell(random);
    }
    // Pressure grows or falls along a stroke.
    const double pen_first = pen * Between(random, 0.8, 1.2);
    const double pen_last = pen * Between(random, 0.8, 1.2);
    const int steps = 6;  // per pair of points
    const double all_steps = static_cast<double>((count - 1) * steps);
    const auto pen_at = [&](std::size_t step) {
      return pen_first + (pen_last - pen_first) * (static_cast<double>(step) / all_steps);
    };
    Point from = hand(points[0]);
    for (std::size_t i = 0; i + 1 < count; ++i) {
      const Point& before = points[i > 0 ? i - 1 : 0];
      const Point& after = points[i + 2 < count ? i + 2 : count - 1];
      for (int step = 1; step <= steps; ++step) {
        const double t = step / static_cast<double>(steps);
        const Point at = stroke.smooth ? OnCurve(before, points[i], points[i + 1], after, t)
                                       : Point{points[i].x + t * (points[i + 1].x - points[i].x),
                                               points[i].y + t * (points[i + 1].y - points[i].y)};
        const Point to = hand(at);
        const std::size_t done = i * steps + static_cast<std::size_t>(step);
        canvas.Segment(from, to, pen_at(done - 1), pen_at(done));
        from = to;
      }
    }
  }

  const double ink = Between(random, 200.0, 255.0);
  const double softness = Between(random, 0.9, 1.6);  // width of the grey edge, in pixels
  const double grain = Between(random, 0.0, 0.35);    // of the ink, largest share taken away
  for (std::size_t i = 0; i < kDigitPixels; ++i) {
    const double cover = std::clamp(0.5 - canvas.outside(i) / softness, 0.0, 1.0);
    const double value = cover * ink * (1.0 - grain * random.Uniform());
    pixels[i] = static_cast<std::uint8_t>(value + 0.5);
  }
  return label;
}

Status WriteGeneratedDigits(const std::string& dir, std::uint32_t n_train, std::uint32_t n_test,
                            std::uint64_t seed) {
  for (const std::uint32_t count : {n_train, n_test}) {
    if (count < 1 || count > kMaxGeneratedDigits) {
      return InvalidArgument(fmt::format("cannot generate a set of {} digits: ask for 1 to {}",
                                         count, kMaxGeneratedDigits));
    }
  }
  const std::string source = fmt::format(
      "These images are not MNIST. They are digits drawn by a program: passel, digit generator\n"
      "version {}, seed {}, {} training and {} test images of {} x {} pixels.\n",
      kDigitsVersion, seed, n_train, n_test, kDigitSide, kDigitSide);
  const std::span<const std::byte> pieces[] = {std::as_bytes(std::span(source))};
  PASSEL_RETURN_IF_ERROR(WriteFileAtomically(fmt::format("{}/SOURCE", dir), pieces));
  PASSEL_RETURN_IF_ERROR(WriteSet(dir, DigitSet::kTest, n_test, seed));
  return WriteSet(dir, DigitSet::kTrain, n_train, seed);
}

}  // namespace passel
