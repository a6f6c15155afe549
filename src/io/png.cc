#include "io/png.h"

#include <fmt/core.h>
#include <png.h>

#include <csetjmp>
#include <cstring>

namespace passel {
namespace {

// The most that deflate can expand: 258 bytes from 2 bits.
constexpr std::uint64_t kMaxDeflateRatio = 1032;

// What libpng's callbacks see.
struct Input {
  const std::uint8_t* next;
  std::size_t left;  // bytes
  char message[128];
};

// Called by libpng, which must not be left by an exception: only jumps.
extern "C" void OnPngError(png_structp png, const char* message) {
  auto* input = static_cast<Input*>(png_get_error_ptr(png));
  std::strncpy(input->message, message, sizeof(input->message) - 1);
  png_longjmp(png, 1);
}
extern "C" void OnPngWarning(png_structp, const char*) {}
extern "C" void OnPngRead(png_structp png, png_bytep to, png_size_t bytes) {
  auto* input = static_cast<Input*>(png_get_io_ptr(png));
  if (bytes > input->left) png_error(png, "it is cut off");
  std::memcpy(to, input->next, bytes);
  input->next += bytes;
  input->left -= bytes;
}

// Chunks that say how light the values are, among those that need not be understood.
constexpr png_byte kLightChunks[] = "cHRM\0gAMA\0iCCP\0sRGB";

// The next two are jumped out of, so nothing in them has a destructor. False: Input::message says
// why.
bool ReadHeader(png_structp png, png_infop info, Input* input) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_set_read_fn(png, input, &OnPngRead);
  png_set_benign_errors(png, 1);
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_AS_DEFAULT, kLightChunks,
                              sizeof(kLightChunks) / 5);
  png_read_info(png, info);
  return true;
}

// `rows`: where each row of the picture goes, 4 * width bytes.
bool ReadRows(png_structp png, png_infop info, png_bytepp rows, std::size_t width) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  // Without a word of the file about it, values are those of a screen; so are 16 bits of them.
  png_set_alpha_mode(png, PNG_ALPHA_PNG, PNG_DEFAULT_sRGB);
  png_set_expand(png);
  png_set_scale_16(png);
  png_set_gray_to_rgb(png);
  png_set_add_alpha(png, 255, PNG_FILLER_AFTER);
  (void)png_set_interlace_handling(png);
  png_read_update_info(png, info);
  if (png_get_rowbytes(png, info) != 4 * width) png_error(png, "its rows are of another length");
  png_read_image(png, rows);
  return true;
}

// Owns libpng's structures.
struct PngReader {
  Input input;
  png_structp png = nullptr;
  png_infop info = nullptr;

  explicit PngReader(std::span<const std::uint8_t> bytes)
      : input{bytes.data(), bytes.size(), "there is too little memory"} {
    png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &input, &OnPngError, &OnPngWarning);
    if (png != nullptr) info = png_create_info_struct(png);
  }
  ~PngReader() { png_destroy_read_struct(&png, &info, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;
};

}  // namespace

Result<RgbaPicture> DecodePng(std::span<const std::uint8_t> bytes, const std::string& name) {
  if (bytes.size() < 8 || png_sig_cmp(bytes.data(), 0, 8) != 0) {
    return InvalidArgument(fmt::format(
        "{} is no PNG file: it does not begin like one; save the picture as PNG", name));
  }
  const auto corrupt = [&](const char* why) {
    return DataLoss(fmt::format("{} is a corrupt PNG file: {}; save the picture anew", name, why));
  };
  PngReader reader(bytes);
  if (reader.info == nullptr || !ReadHeader(reader.png, reader.info, &reader.input)) {
    return corrupt(reader.input.message);
  }
  const std::uint64_t width = png_get_image_width(reader.png, reader.info);
  const std::uint64_t height = png_get_image_height(reader.png, reader.info);
  if (width > kMaxPngSide || height > kMaxPngSide || width * height > kMaxPngPixels) {
    return InvalidArgument(
        fmt::format("{} has {} x {} pixels, at most {} each way and {} in all are read: scale it "
                    "down",
                    name, width, height, kMaxPngSide, kMaxPngPixels));
  }
  // At least one bit per pixel must come out of it.
  if (width * height / 8 > bytes.size() * kMaxDeflateRatio) {
    return corrupt(
        fmt::format("its {} bytes cannot hold its {} x {} pixels", bytes.size(), width, height)
            .c_str());
  }
  RgbaPicture picture;
  picture.width = width;
  picture.height = height;
  picture.pixels.resize(width * height * 4);
  std::vector<png_bytep> rows(height);
  for (std::size_t y = 0; y < height; ++y) rows[y] = &picture.pixels[y * width * 4];
  if (!ReadRows(reader.png, reader.info, rows.data(), width)) return corrupt(reader.input.message);
  return picture;
}

}  // namespace passel
