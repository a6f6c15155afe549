// fuzz_handshake.cc - libFuzzer target: no bytes from a stranger may crash either side of the
// handshake between hosts, or be let in; what facts are read are written as they were read.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "cluster/json_message.h"
#include "fabric/control/task_facts.h"
#include "fabric/control/tcp_handshake.h"

namespace {

using namespace passel;
using namespace passel::fabric;

[[noreturn]] void Fail(const char* what) {
  std::fprintf(stderr, "fuzz_handshake: %s\n", what);
  std::abort();
}

const DoorKey& Key() {
  static const DoorKey kKey = {.token = JobToken::Generate()};
  return kKey;
}

template <typename Message>
Message Take(const std::uint8_t*& data, std::size_t& size) {
  Message message{};
  const std::size_t part = std::min(size, message.size());
  std::copy_n(data, part, message.begin());
  data += part;
  size -= part;
  return message;
}

void Handshake(const std::uint8_t* data, std::size_t size) {
  TcpServerHandshake server(Key(), "job");
  Status status;
  StreamKeys keys;
  const AnswerBytes answer = server.Answer(Take<HelloBytes>(data, size), &status);
  if (!status.ok() && (status.message().empty() || answer[6] != 1)) Fail("not refused");
  if (server.Check(Take<KeyedHash>(data, size), &keys).ok()) Fail("let in without the token");
  const TcpClientHandshake client(Key(), {"job"});
  if (client.Prove(Take<AnswerBytes>(data, size), &keys).ok()) Fail("a server without the token");
}

void Facts(std::string_view text) {
  const Result<Json> json = ParseMessage(text);
  if (!json.ok()) return;
  const Result<TaskFacts> facts = FactsFromJson(*json);
  if (!facts.ok()) {
    if (facts.status().code() != Code::kDataLoss) Fail("another code");
    return;
  }
  const std::string written = FactsJson(*facts).Write();
  const Result<TaskFacts> again = FactsFromJson(*ParseMessage(written));
  if (!again.ok() || FactsJson(*again).Write() != written) Fail("changed by writing");
  (void)CheckFacts(*facts, *again);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Handshake(data, size);
  Facts({reinterpret_cast<const char*>(data), size});
  return 0;
}
