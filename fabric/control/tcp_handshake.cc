#include "fabric/control/tcp_handshake.h"

#include <fmt/core.h>
#include <sodium.h>

#include <algorithm>
#include <cstring>

namespace passel::fabric {
namespace {

constexpr char kMark[] = {'P', 'S', 'L', 'C'};
constexpr std::size_t kJobBytes = 48;
// Places of the hello, and of the answer.
constexpr std::size_t kVersionAt = 4, kRoleAt = 6, kOpenAt = 7, kIndexAt = 8, kJobAt = 16,
                      kHelloKeyAt = 64;
constexpr std::size_t kRefusedAt = 6, kAnswerKeyAt = 8, kProofAt = 40;

constexpr std::string_view kServerProof = "tcp-server:", kClientProof = "tcp-client:";
constexpr std::string_view kToServer = "tcp-key-to-server:", kToClient = "tcp-key-to-client:";

std::string_view Text(std::span<const std::uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string Text(std::string_view word, std::string_view said) {
  return std::string(word) + std::string(said);
}

template <std::size_t kAt, std::size_t kBytes>
std::span<const std::uint8_t, 32> KeyIn(const std::array<std::uint8_t, kBytes>& message) {
  static_assert(kAt + 32 <= kBytes);
  return std::span<const std::uint8_t, 32>(message.data() + kAt, 32);
}

template <std::size_t kBytes>
bool HasMark(const std::array<std::uint8_t, kBytes>& message) {
  return std::memcmp(message.data(), kMark, sizeof kMark) == 0;
}

template <std::size_t kBytes>
int VersionOf(const std::array<std::uint8_t, kBytes>& message) {
  return message[kVersionAt] | message[kVersionAt + 1] << 8;
}

template <std::size_t kBytes>
void Begin(std::array<std::uint8_t, kBytes>& message) {
  message.fill(0);
  std::memcpy(message.data(), kMark, sizeof kMark);
  message[kVersionAt] = kControlVersion & 0xff;
  message[kVersionAt + 1] = kControlVersion >> 8;
}

const JobToken& TokenOf(const DoorKey& key) {
  static const JobToken kNone;
  return key.insecure_no_auth ? kNone : key.token;
}

// `secret` and what was said.
KeyedHash DirectionKey(const DoorKey& key, const std::string& job_id, std::string_view direction,
                       const std::string& secret, std::string_view said) {
  std::string text = Text(direction, secret);
  text.reserve(text.size() + said.size());
  text += said;
  const KeyedHash made = HashWith(TokenOf(key), job_id, text);
  sodium_memzero(text.data(), text.size());
  return made;
}

}  // namespace

Status DoorKey::Check() const {
  if (insecure_no_auth || !token.empty()) return {};
  return InvalidArgument(
      "there is no job token: name a file of 32 bytes with --token_file, or give authentication up "
      "with --insecure_no_auth");
}

StreamKeys::~StreamKeys() {
  sodium_memzero(send.data(), send.size());
  sodium_memzero(receive.data(), receive.size());
}

FreshKey::FreshKey() {
  PASSEL_CHECK(sodium_init() >= 0, "libsodium does not start");
  static_assert(crypto_box_PUBLICKEYBYTES == 32 && crypto_box_SECRETKEYBYTES == 32);
  crypto_box_keypair(public_.data(), secret_.data());
}

FreshKey::~FreshKey() { sodium_memzero(secret_.data(), secret_.size()); }

bool FreshKey::SecretWith(std::span<const std::uint8_t, 32> other, std::string* secret) const {
  static_assert(crypto_scalarmult_BYTES == 32);
  secret->resize(crypto_scalarmult_BYTES);
  return crypto_scalarmult(reinterpret_cast<std::uint8_t*>(secret->data()), secret_.data(),
                           other.data()) == 0;
}

TcpClientHandshake::TcpClientHandshake(DoorKey key, const Claim& me)
    : key_(std::move(key)), job_id_(me.job_id) {
  PASSEL_CHECK(key_.Check().ok() && job_id_.size() <= kJobBytes, "a key and a job id");
  Begin(hello_);
  hello_[kRoleAt] = static_cast<std::uint8_t>(me.role);
  hello_[kOpenAt] = key_.insecure_no_auth;
  const auto index = static_cast<std::uint32_t>(me.index);
  for (std::size_t i = 0; i < 4; ++i) {
    hello_[kIndexAt + i] = static_cast<std::uint8_t>(index >> (8 * i));
  }
  std::memcpy(hello_.data() + kJobAt, job_id_.data(), job_id_.size());
  std::ranges::copy(fresh_.public_half(), hello_.begin() + kHelloKeyAt);
}

Result<KeyedHash> TcpClientHandshake::Prove(const AnswerBytes& answer, StreamKeys* keys) const {
  if (!HasMark(answer)) {
    return PermissionDenied("what answers there is no task of passel");
  }
  if (VersionOf(answer) != kControlVersion) {
    return FailedPrecondition(fmt::format(
        "it speaks version {} of the handshake and this task version {}: start all tasks from the "
        "same build",
        VersionOf(answer), kControlVersion));
  }
  if (answer[kRefusedAt] != 0) {
    return PermissionDenied(fmt::format(
        "it refuses this task: it is of another job than {}, has another job token, or only one of "
        "the two was started with --insecure_no_auth",
        job_id_));
  }
  const std::string said = Text(Text(hello_), Text(answer).substr(0, kProofAt));
  KeyedHash proof;
  std::copy_n(answer.begin() + kProofAt, proof.size(), proof.begin());
  std::string secret;
  if (answer[kOpenAt] != hello_[kOpenAt] ||
      !CheckHash(TokenOf(key_), job_id_, Text(kServerProof, said), proof) ||
      !fresh_.SecretWith(KeyIn<kAnswerKeyAt>(answer), &secret)) {
    return PermissionDenied("it has another job token: give all tasks the same --token_file");
  }
  keys->send = DirectionKey(key_, job_id_, kToServer, secret, said);
  keys->receive = DirectionKey(key_, job_id_, kToClient, secret, said);
  sodium_memzero(secret.data(), secret.size());
  return HashWith(TokenOf(key_), job_id_, Text(kClientProof, said));
}

TcpServerHandshake::TcpServerHandshake(DoorKey key, std::string job_id)
    : key_(std::move(key)), job_id_(std::move(job_id)) {
  PASSEL_CHECK(key_.Check().ok(), "a key");
}

Status TcpServerHandshake::Read(const HelloBytes& hello) {
  if (!HasMark(hello)) return PermissionDenied("it sent what is no hello");
  if (VersionOf(hello) != kControlVersion) {
    return FailedPrecondition(
        fmt::format("it speaks version {} of the handshake", VersionOf(hello)));
  }
  const std::string_view job = Text(std::span(hello).subspan(kJobAt, kJobBytes));
  if (job != Text(job_id_, std::string(kJobBytes - job_id_.size(), '\0'))) {
    return PermissionDenied("it is of another job");
  }
  if (hello[kOpenAt] != (key_.insecure_no_auth ? 1 : 0)) {
    return PermissionDenied("one of the two wants no authentication");
  }
  std::uint32_t index = 0;
  for (std::size_t i = 0; i < 4; ++i) index |= std::uint32_t{hello[kIndexAt + i]} << (8 * i);
  if (hello[kRoleAt] > static_cast<std::uint8_t>(Role::kEvaluator) || index > INT32_MAX) {
    return PermissionDenied("it is no task");
  }
  claim_ = {job_id_, static_cast<Role>(hello[kRoleAt]), static_cast<int>(index)};
  fresh_.emplace();
  if (!fresh_->SecretWith(KeyIn<kHelloKeyAt>(hello), &secret_)) {
    return PermissionDenied("its key is none");
  }
  return {};
}

AnswerBytes TcpServerHandshake::Answer(const HelloBytes& hello, Status* status) {
  AnswerBytes answer;
  Begin(answer);
  *status = Read(hello);
  if (!status->ok()) {
    answer[kRefusedAt] = 1;
    return answer;
  }
  answer[kOpenAt] = key_.insecure_no_auth;
  std::ranges::copy(fresh_->public_half(), answer.begin() + kAnswerKeyAt);
  said_ = Text(Text(hello), Text(answer).substr(0, kProofAt));
  const KeyedHash proof = HashWith(TokenOf(key_), job_id_, Text(kServerProof, said_));
  std::ranges::copy(proof, answer.begin() + kProofAt);
  return answer;
}

Status TcpServerHandshake::Check(const KeyedHash& proof, StreamKeys* keys) const {
  if (said_.empty() || !CheckHash(TokenOf(key_), job_id_, Text(kClientProof, said_), proof)) {
    return PermissionDenied("it does not know the job token");
  }
  keys->receive = DirectionKey(key_, job_id_, kToServer, secret_, said_);
  keys->send = DirectionKey(key_, job_id_, kToClient, secret_, said_);
  return {};
}

}  // namespace passel::fabric
