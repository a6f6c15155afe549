// fuzz_json.cc - libFuzzer target: no text may crash the reader of JSON or what reads the messages
// and the plan of a job with it; what is read comes back when it is written again.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "cluster/handshake.h"
#include "cluster/json_message.h"
#include "store/store_plan.h"

namespace {

using namespace passel;

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "fuzz_json: %s\n", what.c_str());
  std::abort();
}

void CheckMessage(const Status& status) {
  const std::string& text = status.message();
  if (status.ok()) return;
  if (text.empty() || text.size() > 2000) Fail("message of a wrong length");
  for (const char c : text) {
    if (c < 0x20 || c > 0x7E) Fail("message that cannot be printed");
  }
}

void CheckTree(const std::string& text) {
  const Result<Json> json = ParseJson("it", text, 4);
  if (!json.ok()) return CheckMessage(json.status());
  for (const int indent : {-1, 2}) {
    for (const Json::Charset charset : {Json::Charset::kUtf8, Json::Charset::kAscii}) {
      const Result<Json> again = ParseJson("it", json->Write(indent, charset), 4);
      if (!again.ok()) Fail("written, but: " + again.status().ToString());
      if (again->Write() != json->Write()) Fail("changed by writing");
    }
  }
  (void)json->Leaves();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  CheckTree(text);
  static const JobToken token = JobToken::Generate();
  static const ServerHandshake door(token, {"job", Role::kPs, 0, 99}, {7, 0x1234});
  static const ClientHandshake client({"job", Role::kWorker, 3, 99}, {7, 0x1234});
  Peer peer;
  std::string transcript;
  CheckMessage(ParseMessage(text).status());
  CheckMessage(door.Challenge(text, &peer, &transcript).status());
  CheckMessage(door.CheckAnswer(text, transcript));
  CheckMessage(client.Answer(text, token, "ps/0").status());
  if (const Result<Json> message = ParseMessage(text); message.ok()) ErrorOf(*message).code();
  const Result<StorePlan> plan = PlanFromJson(text);
  if (plan.ok() && ToJson(*plan) != text) Fail("a plan that is written in another way");
  return 0;
}
