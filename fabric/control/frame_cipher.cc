#include "fabric/control/frame_cipher.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <array>

#include "base/check.h"

namespace passel::fabric {
namespace {

constexpr std::size_t kKeyBytes = 32, kNonceBytes = 12;
static_assert(sizeof(KeyedHash) == kKeyBytes);

// Of a context of our own: what the system's configuration of OpenSSL leaves out is there too.
const EVP_CIPHER* Cipher() {
  static const EVP_CIPHER* const cipher = [] {
    // Connections may be closed by what ends after main().
    (void)OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
    OSSL_LIB_CTX* const library = OSSL_LIB_CTX_new();
    const EVP_CIPHER* const fetched = EVP_CIPHER_fetch(library, "ChaCha20-Poly1305", nullptr);
    PASSEL_CHECK(fetched != nullptr, "OpenSSL has no ChaCha20-Poly1305");
    return fetched;
  }();
  return cipher;
}

int Length(std::span<const std::uint8_t> bytes) { return static_cast<int>(bytes.size()); }

}  // namespace

void FrameCipher::Free::operator()(evp_cipher_ctx_st* context) const {
  EVP_CIPHER_CTX_free(context);
}

FrameCipher::FrameCipher(const KeyedHash& key, Use use) : context_(EVP_CIPHER_CTX_new()) {
  PASSEL_CHECK(
      context_ != nullptr && EVP_CipherInit_ex2(context_.get(), Cipher(), key.data(), nullptr,
                                                use == Use::kSeal ? 1 : 0, nullptr) == 1,
      "OpenSSL does not take a key");
}

// Direction and key stay those of the constructor.
void FrameCipher::Begin(std::uint64_t number, std::span<const std::uint8_t> clear) {
  std::array<std::uint8_t, kNonceBytes> nonce{};
  for (std::size_t i = 0; i < 8; ++i) nonce[i] = static_cast<std::uint8_t>(number >> (8 * i));
  int written = 0;
  PASSEL_CHECK(
      EVP_CipherInit_ex2(context_.get(), nullptr, nullptr, nonce.data(), -1, nullptr) == 1 &&
          EVP_CipherUpdate(context_.get(), nullptr, &written, clear.data(), Length(clear)) == 1,
      "OpenSSL does not begin a frame");
}

void FrameCipher::Seal(std::uint64_t number, std::span<const std::uint8_t> clear,
                       std::span<const std::span<const std::uint8_t>> parts,
                       std::span<std::uint8_t> out) {
  Begin(number, clear);
  int written = 0;
  for (const std::span<const std::uint8_t> part : parts) {
    if (part.empty()) continue;
    PASSEL_CHECK(out.size() >= part.size() + kSealBytes &&
                     EVP_CipherUpdate(context_.get(), out.data(), &written, part.data(),
                                      Length(part)) == 1 &&
                     written == Length(part),
                 "OpenSSL does not encrypt");
    out = out.subspan(part.size());
  }
  PASSEL_CHECK(out.size() == kSealBytes, "a sealed frame has another size");
  PASSEL_CHECK(
      EVP_CipherFinal_ex(context_.get(), out.data(), &written) == 1 && written == 0 &&
          EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_GET_TAG, kSealBytes, out.data()) == 1,
      "OpenSSL does not seal");
}

bool FrameCipher::Open(std::uint64_t number, std::span<const std::uint8_t> clear,
                       std::span<std::uint8_t> sealed) {
  PASSEL_CHECK(sealed.size() > kSealBytes, "a sealed frame is too short");
  const std::span<std::uint8_t> text = sealed.first(sealed.size() - kSealBytes);
  const std::span<std::uint8_t> seal = sealed.last(kSealBytes);
  Begin(number, clear);
  int written = 0;
  return EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_SET_TAG, kSealBytes, seal.data()) == 1 &&
         EVP_CipherUpdate(context_.get(), text.data(), &written, text.data(), Length(text)) == 1 &&
         EVP_CipherFinal_ex(context_.get(), text.data() + text.size(), &written) == 1;
}

}  // namespace passel::fabric
