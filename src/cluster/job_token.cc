#include "cluster/job_token.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sodium.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <utility>

#include "base/file.h"

namespace passel {
namespace {

static_assert(crypto_auth_KEYBYTES == JobToken::kBytes);
static_assert(sizeof(KeyedHash) == crypto_auth_BYTES);

void StartSodium() { PASSEL_CHECK(sodium_init() >= 0, "libsodium does not start"); }

std::string Hex(const std::uint8_t* bytes, std::size_t count) {
  std::string text(2 * count + 1, '\0');
  sodium_bin2hex(text.data(), text.size(), bytes, count);
  text.resize(2 * count);
  return text;
}

// The key of one job: a token that is used for two jobs by mistake still tells them apart. Wiped.
class JobKey {
 public:
  JobKey(const JobToken& token, std::string_view job_id) {
    StartSodium();
    const std::string context = "passel-auth-1" + std::string(job_id);
    crypto_generichash(bytes_, sizeof bytes_, reinterpret_cast<const std::uint8_t*>(context.data()),
                       context.size(), token.bytes().data(), token.bytes().size());
  }
  ~JobKey() { sodium_memzero(bytes_, sizeof bytes_); }
  JobKey(const JobKey&) = delete;
  JobKey& operator=(const JobKey&) = delete;

  const std::uint8_t* data() const { return bytes_; }

 private:
  std::uint8_t bytes_[crypto_auth_KEYBYTES];
};

std::string Labelled(ProofSide side, std::string_view transcript) {
  return std::string(side == ProofSide::kServer ? "srv" : "wrk") + std::string(transcript);
}

}  // namespace

// One byte more than a token: a file that is longer shows.
struct JobToken::Secret {
  std::array<std::uint8_t, kBytes> bytes{};
  std::uint8_t more = 0;
};

std::shared_ptr<JobToken::Secret> JobToken::NewSecret() {
  StartSodium();
  void* const memory = sodium_malloc(sizeof(Secret));
  if (memory == nullptr) throw std::bad_alloc();
  return {new (memory) Secret, [](Secret* secret) { sodium_free(secret); }};
}

const std::array<std::uint8_t, JobToken::kBytes>& JobToken::bytes() const {
  static constexpr std::array<std::uint8_t, kBytes> kNone{};
  return secret_ ? secret_->bytes : kNone;
}

JobToken JobToken::Generate() {
  const std::shared_ptr<Secret> secret = NewSecret();
  randombytes_buf(secret->bytes.data(), kBytes);
  JobToken token;
  token.secret_ = secret;
  return token;
}

Status JobToken::CheckFile(int fd, const std::string& path) {
  struct stat info;
  if (::fstat(fd, &info) != 0) return ErrnoStatus(errno, "cannot stat the token file");
  if (!S_ISREG(info.st_mode)) {
    return InvalidArgument(
        fmt::format("the token file {} is no regular file: name a file of {} bytes", path, kBytes));
  }
  // Whoever owns it can change it at any time. Root, who mounts secrets, can do so anyway.
  if (info.st_uid != ::geteuid() && info.st_uid != 0) {
    return InvalidArgument(
        fmt::format("the token file {} belongs to user {}, not to user {} or root: make a copy of "
                    "your own, of mode 0400",
                    path, info.st_uid, ::geteuid()));
  }
  // A memory file has no other readers whatever its mode.
  const bool memory_file = ::fcntl(fd, F_GET_SEALS) > 0;
  if (memory_file || (info.st_mode & 077) == 0) return {};
  return InvalidArgument(
      fmt::format("the token file {} has mode {:04o}, so other users can use it: chmod 0400 it",
                  path, info.st_mode & 07777));
}

Result<JobToken> JobToken::Read(const std::string& path) {
  // Without waiting for who writes to a FIFO.
  FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd.valid()) return ErrnoStatus(errno, fmt::format("cannot open the token file {}", path));
  PASSEL_RETURN_IF_ERROR(CheckFile(fd.get(), path));
  const std::shared_ptr<Secret> secret = NewSecret();
  static_assert(sizeof(Secret) == kBytes + 1);
  const ssize_t got = ::pread(fd.get(), secret.get(), sizeof(Secret), 0);
  if (got != static_cast<ssize_t>(kBytes)) {
    struct stat info {};
    ::fstat(fd.get(), &info);
    return InvalidArgument(fmt::format(
        "a token file has exactly {} bytes, {} has {}: delete it, the first task makes a new one",
        kBytes, path, info.st_size));
  }
  JobToken token;
  token.secret_ = secret;
  return token;
}

Result<JobToken> JobToken::ReadOrCreate(const std::string& path) {
  if (Result<JobToken> token = Read(path); token.ok() || token.status().code() != Code::kNotFound) {
    return token;
  }
  PASSEL_ASSIGN_OR_RETURN(const NewFile made, Create(path, false));
  return made.fd.valid() ? made.token : Read(path);  // of several at once one token counts
}

Result<JobToken::NewFile> JobToken::Create(const std::string& path, bool locked) {
  // Written without a name, or under another one, and then linked: nobody sees a file that is not
  // complete. A random name: pids repeat, and two containers may share the folder.
  const JobToken token = Generate();
  const std::size_t slash = path.rfind('/');
  const std::string dir = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  std::string temporary;
  FileDescriptor fd(::open(dir.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0400));
  if (!fd.valid() && (errno == EOPNOTSUPP || errno == EISDIR)) {
    temporary = fmt::format("{}.{}", path, MakeNonce().substr(0, 16));
    fd.Reset(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0400));
  }
  if (!fd.valid()) return ErrnoStatus(errno, fmt::format("cannot create the token file {}", path));
  if (const int failed = FileOps::Real().Write(fd.get(), token.bytes().data(), kBytes)) {
    if (!temporary.empty()) ::unlink(temporary.c_str());
    return ErrnoStatus(failed, fmt::format("cannot write the token file {}", path));
  }
  // Nobody else can have it open yet: this does not wait.
  const int lock_error = locked && ::flock(fd.get(), LOCK_SH | LOCK_NB) != 0 ? errno : 0;
  const std::string from =
      temporary.empty() ? fmt::format("/proc/self/fd/{}", fd.get()) : temporary;
  const int linked =
      lock_error != 0 ? -1
                      : ::linkat(AT_FDCWD, from.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW);
  const int error = lock_error != 0 ? lock_error : errno;
  if (!temporary.empty()) ::unlink(temporary.c_str());
  if (linked == 0) return NewFile{std::move(fd), token};
  if (error == EEXIST) return NewFile{FileDescriptor(), JobToken()};
  return ErrnoStatus(error, fmt::format("cannot create the token file {}", path));
}

KeyedHash HashWith(const JobToken& token, std::string_view job_id, std::string_view text) {
  const JobKey key(token, job_id);
  KeyedHash hash;
  crypto_auth(hash.data(), reinterpret_cast<const std::uint8_t*>(text.data()), text.size(),
              key.data());
  return hash;
}

bool CheckHash(const JobToken& token, std::string_view job_id, std::string_view text,
               const KeyedHash& hash) {
  const JobKey key(token, job_id);
  return crypto_auth_verify(hash.data(), reinterpret_cast<const std::uint8_t*>(text.data()),
                            text.size(), key.data()) == 0;
}

std::string MakeProof(const JobToken& token, std::string_view job_id, ProofSide side,
                      std::string_view transcript) {
  const KeyedHash proof = HashWith(token, job_id, Labelled(side, transcript));
  return Hex(proof.data(), proof.size());
}

bool CheckProof(const JobToken& token, std::string_view job_id, ProofSide side,
                std::string_view transcript, std::string_view proof) {
  KeyedHash bytes;
  std::size_t length = 0;
  if (sodium_hex2bin(bytes.data(), bytes.size(), proof.data(), proof.size(), nullptr, &length,
                     nullptr) != 0 ||
      length != bytes.size()) {
    return false;
  }
  return CheckHash(token, job_id, Labelled(side, transcript), bytes);
}

std::string MakeNonce() {
  StartSodium();
  std::uint8_t bytes[32];
  randombytes_buf(bytes, sizeof bytes);
  return Hex(bytes, sizeof bytes);
}

}  // namespace passel
