// fuzz_tf_config.cc - libFuzzer target: no TF_CONFIG may crash the reader or the resolution; what
// is accepted keeps the rules of tf_config.h and comes back when it is written again.
//
// From the repository root:
//   clang++-14 -std=c++20 -g -O1 -DFMT_HEADER_ONLY -fsanitize=fuzzer,address,undefined \
//     -fno-sanitize-recover=all -I. -Isrc tests/fuzz/fuzz_tf_config.cc src/cluster/*.cc \
//     src/base/{status,check,file,clock}.cc -lyaml -o /tmp/fuzz_tf_config
//   mkdir -p /tmp/fuzz_tf_config_corpus
//   /tmp/fuzz_tf_config -max_len=4096 -max_total_time=180 /tmp/fuzz_tf_config_corpus \
//     tests/fuzz/corpus/tf_config

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "cluster/resolve.h"
#include "cluster/tf_config.h"

namespace {

using namespace passel;

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "fuzz_tf_config: %s\n", what.c_str());
  std::abort();
}

void CheckMessage(const Status& status) {
  if (status.code() != Code::kInvalidArgument) Fail("code: " + status.ToString());
  const std::string& text = status.message();
  if (text.empty() || text.size() > 2000) Fail("message of a wrong length");
  for (const char c : text) {
    if (c < 0x20 || c > 0x7E) Fail("message that cannot be printed");
  }
}

/// The cluster as a document of index maps.
std::string Write(const TfConfig& config) {
  std::string text = "{\"cluster\":{";
  for (const auto& [job, tasks] : config.cluster.jobs()) {
    if (text.back() != '{') text += ',';
    text += "\"" + job + "\":{";
    for (const auto& [index, address] : tasks) {
      if (text.back() != '{') text += ',';
      text += "\"" + std::to_string(index) + "\":\"" + address.ToString() + "\"";
    }
    text += "}";
  }
  text += "},\"task\":{\"type\":";
  text += config.task_type.empty() ? "null" : "\"" + config.task_type + "\"";
  if (config.task_index) text += ",\"index\":" + std::to_string(*config.task_index);
  return text + "}}";
}

void CheckAccepted(const TfConfig& config) {
  if (const Status status = config.cluster.CheckSingleTasks(); !status.ok()) {
    Fail("accepted, but: " + status.message());
  }
  if (!config.partial && !config.cluster.dense()) Fail("a gap is not called partial");
  const bool has_cluster = !config.cluster.jobs().empty();
  if (has_cluster && config.task_index && !config.task_type.empty() &&
      !config.cluster.Address({config.task_type, *config.task_index}).ok() &&
      config.task_type != "evaluator") {
    Fail("the task is not in the cluster");
  }
  const auto again = ParseTfConfig(Write(config));
  if (!again.ok()) Fail("written, but: " + again.status().ToString());
  if (again->cluster != config.cluster || again->task_type != config.task_type ||
      again->task_index != config.task_index) {
    Fail("changed by writing");
  }
}

void CheckResolved(const std::string& text, bool with_flags) {
  const Flag flags[] = {{"job_name", FlagType::kText, "worker", with_flags},
                        {"task_index", FlagType::kText, "1", with_flags},
                        {"ps_hosts", FlagType::kText, "p:1", with_flags},
                        {"worker_hosts", FlagType::kText, "w:1,w:2", with_flags},
                        {"num_gpus", FlagType::kInteger, "2", false}};
  ResolveInputs inputs;
  if (with_flags) inputs.flags = flags;
  inputs.environment = [&](const std::string& name) -> std::optional<std::string> {
    if (name == "TF_CONFIG") return text;
    return std::nullopt;
  };
  const auto config = Resolve(inputs);
  if (!config.ok()) return CheckMessage(config.status());
  if (config->distributed != config->task.has_value()) Fail("a task without a cluster");
  if (config->distributed && !config->partial && config->task->job != "evaluator" &&
      !config->cluster.Validate().ok()) {
    Fail("resolved to a cluster that cannot run");
  }
  if (config->Describe().empty()) Fail("no description");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto config = ParseTfConfig(text);
  if (config.ok()) {
    CheckAccepted(*config);
  } else {
    CheckMessage(config.status());
  }
  CheckResolved(text, false);
  CheckResolved(text, true);
  return 0;
}
