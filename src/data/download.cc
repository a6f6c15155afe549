#include "data/download.h"

#include <curl/curl.h>
#include <dlfcn.h>
#include <fmt/core.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <mutex>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"

namespace passel {
namespace {

constexpr long kMaxRedirects = 5;

// The functions of libcurl that are used here.
struct Curl {
  decltype(&curl_global_init) global_init;
  decltype(&curl_easy_init) easy_init;
  decltype(&curl_easy_setopt) easy_setopt;
  decltype(&curl_easy_perform) easy_perform;
  decltype(&curl_easy_getinfo) easy_getinfo;
  decltype(&curl_easy_strerror) easy_strerror;
  decltype(&curl_easy_cleanup) easy_cleanup;
};

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(library, name));
  return *function != nullptr;
}

// Loads libcurl once per process and keeps it: its resolver may still have a thread in it when we
// have long given up.
Result<const Curl*> LoadCurl() {
  static std::once_flag once;
  static Curl curl;
  static std::string problem;
  std::call_once(once, [] {
    void* library = nullptr;
    for (const char* name : {"libcurl.so.4", "libcurl-gnutls.so.4"}) {
      library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (library != nullptr) break;
    }
    if (library == nullptr) {
      problem = "libcurl.so.4 is not installed: install the package libcurl4";
      return;
    }
    const bool found = Find(library, "curl_global_init", &curl.global_init) &&
                       Find(library, "curl_easy_init", &curl.easy_init) &&
                       Find(library, "curl_easy_setopt", &curl.easy_setopt) &&
                       Find(library, "curl_easy_perform", &curl.easy_perform) &&
                       Find(library, "curl_easy_getinfo", &curl.easy_getinfo) &&
                       Find(library, "curl_easy_strerror", &curl.easy_strerror) &&
                       Find(library, "curl_easy_cleanup", &curl.easy_cleanup);
    if (!found || curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
      problem = "the installed libcurl.so.4 cannot be used: install a complete libcurl4";
    }
  });
  if (!problem.empty()) return Unavailable(problem);
  return &curl;
}

// One transfer into memory, as libcurl's callbacks see it. Callbacks must not throw: `body` has
// room for all it may take before the transfer begins.
struct Transfer {
  std::vector<std::byte> body;
  std::uint64_t limit = 0;  // bytes
  bool too_long = false;
  bool stalled = false;
  std::int64_t stall_ns = 0;
  std::int64_t last_growth_ns = 0;
  curl_off_t last_total = 0;
};

std::size_t OnBody(char* data, std::size_t size, std::size_t count, void* user) {
  auto* transfer = static_cast<Transfer*>(user);
  const std::size_t bytes = size * count;  // libcurl: at most 16 KiB at a time
  if (bytes > transfer->limit - transfer->body.size()) {
    transfer->too_long = true;
    return 0;
  }
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  transfer->body.insert(transfer->body.end(), begin, begin + bytes);
  return bytes;
}

// Called at least once per second, also when nothing arrives.
int OnProgress(void* user, curl_off_t, curl_off_t received, curl_off_t, curl_off_t sent) {
  auto* transfer = static_cast<Transfer*>(user);
  const std::int64_t now = MonotonicNs();
  if (received + sent != transfer->last_total) {
    transfer->last_total = received + sent;
    transfer->last_growth_ns = now;
  }
  transfer->stalled = now - transfer->last_growth_ns >= transfer->stall_ns;
  return transfer->stalled ? 1 : 0;
}

Status TransferError(const Curl& curl, CURLcode code, long http, const Transfer& transfer,
                     const std::string& url, const RemoteFile& file,
                     const DownloadOptions& options) {
  if (transfer.stalled) {
    return DeadlineExceeded(
        fmt::format("{} sent nothing for {} ms, after {} of {} bytes: try again", url,
                    options.stall_timeout.count(), transfer.body.size(), file.bytes));
  }
  if (transfer.too_long) {
    return DataLoss(fmt::format("{} is longer than the {} bytes it should have: use another server",
                                url, file.bytes));
  }
  if (code == CURLE_HTTP_RETURNED_ERROR) {
    const std::string text =
        fmt::format("{} answered with HTTP status {}: check the base URL", url, http);
    return http == 404 || http == 410 ? NotFound(text) : Unavailable(text);
  }
  if (code == CURLE_OPERATION_TIMEDOUT) {
    return DeadlineExceeded(fmt::format(
        "{} did not arrive in time ({} of {} bytes; {} ms to connect, {} ms in all): try again",
        url, transfer.body.size(), file.bytes, options.connect_timeout.count(),
        options.file_timeout.count()));
  }
  if (code == CURLE_PARTIAL_FILE || code == CURLE_RECV_ERROR) {
    return DataLoss(fmt::format("{} was cut off after {} of {} bytes: try again", url,
                                transfer.body.size(), file.bytes));
  }
  return Unavailable(fmt::format("{} cannot be fetched ({}): check the network and the base URL",
                                 url, curl.easy_strerror(code)));
}

// One handle; everything that is waited for has a bound.
Result<std::vector<std::byte>> FetchFrom(const std::string& base_url, const RemoteFile& file,
                                         const DownloadOptions& options) {
  PASSEL_ASSIGN_OR_RETURN(const Curl* const curl, LoadCurl());
  const std::string url =
      fmt::format("{}{}{}", base_url, base_url.ends_with('/') ? "" : "/", file.name);
  Transfer transfer;
  transfer.body.reserve(file.bytes);
  transfer.limit = file.bytes;
  transfer.stall_ns = std::chrono::nanoseconds(options.stall_timeout).count();
  transfer.last_growth_ns = MonotonicNs();

  CURL* handle = curl->easy_init();
  if (handle == nullptr) return ResourceExhausted("libcurl cannot allocate a handle");
  CURLcode code = CURLE_OK;
  const auto set = [&](CURLoption option, auto value) {
    if (code == CURLE_OK) code = curl->easy_setopt(handle, option, value);
  };
  set(CURLOPT_URL, url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
  set(CURLOPT_FOLLOWLOCATION, 1L);
  set(CURLOPT_MAXREDIRS, kMaxRedirects);
  set(CURLOPT_FAILONERROR, 1L);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_USERAGENT, "passel");
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options.connect_timeout.count()));
  set(CURLOPT_TIMEOUT_MS, static_cast<long>(options.file_timeout.count()));
  set(CURLOPT_WRITEFUNCTION, &OnBody);
  set(CURLOPT_WRITEDATA, static_cast<void*>(&transfer));
  set(CURLOPT_XFERINFOFUNCTION, &OnProgress);
  set(CURLOPT_XFERINFODATA, static_cast<void*>(&transfer));
  set(CURLOPT_NOPROGRESS, 0L);
  // After a timeout do not wait for the resolver's thread, which has no deadline of its own.
  // libcurl before 7.87 lacks this option and waits.
  if (code == CURLE_OK) curl->easy_setopt(handle, CURLOPT_QUICK_EXIT, 1L);

  const bool configured = code == CURLE_OK;
  if (configured) code = curl->easy_perform(handle);
  long http = 0;
  curl->easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &http);
  curl->easy_cleanup(handle);
  if (!configured) {
    return Unavailable(
        fmt::format("the installed libcurl cannot do what a download needs ({}): "
                    "install libcurl 7.85 or newer",
                    curl->easy_strerror(code)));
  }
  if (code != CURLE_OK) {
    return TransferError(*curl, code, http, transfer, url, file, options);
  }
  if (transfer.body.size() != file.bytes) {
    return DataLoss(fmt::format("{} has {} bytes and should have {}: use another server", url,
                                transfer.body.size(), file.bytes));
  }
  if (const std::string sum = Sha256Hex(transfer.body); sum != file.sha256) {
    return DataLoss(fmt::format("{} has the SHA-256 {} and should have {}: use another server", url,
                                sum, file.sha256));
  }
  return std::move(transfer.body);
}

// From the first server that has it; if none has, the first one's error with all reasons.
Result<std::vector<std::byte>> Fetch(const RemoteFile& file, const DownloadOptions& options) {
  Result<std::vector<std::byte>> body = FetchFrom(options.base_url, file, options);
  if (body.ok() || options.mirrors.empty()) return body;
  const Code code = body.status().code();
  std::string reasons = body.status().message();
  for (const std::string& mirror : options.mirrors) {
    body = FetchFrom(mirror, file, options);
    if (body.ok()) return body;
    reasons += "; " + body.status().message();
  }
  return Status(code, std::move(reasons));
}

}  // namespace

const RemoteFiles& MnistFiles() {
  static const RemoteFiles files = {{
      {"train-images-idx3-ubyte.gz",
       "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", 9'912'422},
      {"train-labels-idx1-ubyte.gz",
       "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28'881},
      {"t10k-images-idx3-ubyte.gz",
       "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", 1'648'877},
      {"t10k-labels-idx1-ubyte.gz",
       "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", 4'542},
  }};
  return files;
}

std::string Sha256Hex(std::span<const std::byte> bytes) {
  PASSEL_CHECK(sodium_init() >= 0, "libsodium cannot start");
  unsigned char sum[crypto_hash_sha256_BYTES];
  crypto_hash_sha256(sum, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  char text[2 * sizeof(sum) + 1];
  return sodium_bin2hex(text, sizeof(text), sum, sizeof(sum));
}

Status CheckDownloadUrl(std::string_view url) {
  constexpr std::size_t kMaxBytes = 2000;
  const auto wrong = [&](std::string_view why) {
    // A password must not end up in a log.
    const bool secret = url.find('@') != std::string_view::npos;
    return InvalidArgument(fmt::format("{} {}: use, for example, {}",
                                       secret ? "the URL" : Quoted(url), why, kMnistUrl));
  };
  std::string_view rest = url;
  if (url.starts_with("http://")) {
    rest.remove_prefix(7);
  } else if (url.starts_with("https://")) {
    rest.remove_prefix(8);
  } else {
    return wrong("is no base URL of a download, which begins with http:// or https://");
  }
  if (url.size() > kMaxBytes) return wrong("is longer than the 2000 bytes that are allowed");
  if (std::any_of(url.begin(), url.end(), [](char c) { return c <= 0x20 || c >= 0x7F; })) {
    return wrong("holds white space or other characters that no URL has");
  }
  if (rest.find_first_of("@?#") != std::string_view::npos) {
    return wrong("holds one of @ ? #: names of files are put at its end, and it is logged");
  }
  const std::string_view host = rest.substr(0, rest.find('/'));
  const std::size_t bracket = host.starts_with('[') ? host.find(']') : 0;  // around IPv6
  const std::size_t colon = host.find(':', bracket == std::string_view::npos ? 0 : bracket);
  if (host.empty() || colon == 0 || bracket == std::string_view::npos) {
    return wrong("names no host");
  }
  if (colon == std::string_view::npos) return {};
  const std::string_view digits = host.substr(colon + 1);
  int port = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error == std::errc() && stop == digits.data() + digits.size() && port >= 1 && port <= 65535) {
    return {};
  }
  return wrong("has a port that is not 1 to 65535");
}

Status MakeDirectories(const std::string& dir, mode_t mode) {
  for (std::size_t slash = 0; slash != std::string::npos;) {
    slash = dir.find('/', slash + 1);
    const std::string part = dir.substr(0, slash);
    if (::mkdir(part.c_str(), mode) == 0) continue;
    const int error = errno;
    struct stat info;
    // Also for EROFS and the like: what exists need not be made.
    if (::stat(part.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) continue;
    return ErrnoStatus(error == EEXIST ? ENOTDIR : error,
                       fmt::format("cannot create the folder {}", part));
  }
  return {};
}

namespace {

// The folders of `dir` that are not there, the innermost first.
std::vector<std::string> MissingFolders(const std::string& dir) {
  std::vector<std::string> missing;
  struct stat info;
  for (std::string part = dir; !part.empty() && ::stat(part.c_str(), &info) != 0;) {
    missing.push_back(part);
    const std::size_t end = part.find_last_not_of('/');
    const std::size_t slash = end == std::string::npos ? end : part.rfind('/', end);
    part.resize(slash == std::string::npos ? 0 : slash);
  }
  return missing;
}

Status FetchMissing(const std::string& dir, const DownloadOptions& options) {
  PASSEL_RETURN_IF_ERROR(MakeDirectories(dir, options.folder_mode));
  for (const RemoteFile& file : options.files) {
    const std::string path = fmt::format("{}/{}", dir, file.name);
    const std::string plain = path.ends_with(".gz") ? path.substr(0, path.size() - 3) : path;
    if (IsRegularFile(path) || IsRegularFile(plain)) continue;
    PASSEL_ASSIGN_OR_RETURN(const std::vector<std::byte> body, Fetch(file, options));
    const std::span<const std::byte> pieces[] = {body};
    PASSEL_RETURN_IF_ERROR(WriteFileAtomically(path, pieces));
    if (options.on_line) {
      options.on_line(fmt::format("Successfully downloaded {} {} bytes.", file.name, file.bytes));
    }
  }
  return {};
}

}  // namespace

Status DownloadFiles(const std::string& dir, const DownloadOptions& options) {
  const std::vector<std::string> made = MissingFolders(dir);
  const Status status = FetchMissing(dir, options);
  if (status.ok()) return status;
  for (const std::string& folder : made) {
    // Until one holds something: what was complete by then stays.
    if (::rmdir(folder.c_str()) != 0 && errno != ENOENT) break;
  }
  return status;
}

}  // namespace passel
