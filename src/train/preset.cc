#include "train/preset.h"

#include <fmt/core.h>

namespace passel {
namespace {

constexpr PresetSetting kDistMnist[] = {
    {"ps", "1"},
    {"workers", "2"},
    {"ps_hosts", "localhost:2222"},
    {"worker_hosts", "localhost:2223,localhost:2224"},
    {"model", "mlp"},
    {"hidden_units", "100"},
    {"loss", "sum"},
    {"optimizer", "adam"},
    {"learning_rate", "0.01"},
    {"batch_size", "100"},
    {"sampler", "random"},
    {"train_steps", "20000"},
    {"worker_eval_set", "test"},
    {"log_lines", "dist-mnist"},
    {"log_step_count_steps", "1"},
    {"data_dir", "/PS/mnist.npz"},
    {"num_gpus", "1"},
};

constexpr PresetSetting kMonitored[] = {
    {"ps", "1"},
    {"workers", "2"},
    {"model", "mlp"},
    {"hidden_units", "100"},
    {"loss", "mean"},
    {"optimizer", "adam"},
    {"learning_rate", "0.001"},
    {"batch_size", "100"},
    {"sampler", "next_batch"},
    {"train_steps", "100000"},
    {"log_lines", "monitored"},
    {"log_step_count_steps", "100"},
    {"summary_secs", "0"},
    {"summary_steps", "100"},
    {"data_dir", "/data"},
    {"global_step_bytes", "8"},
};

constexpr PresetSetting kAsyncSoftmax[] = {
    {"ps", "1"},
    {"workers", "3"},
    {"ps_hosts", "localhost:9001"},
    {"worker_hosts", "localhost:9002,localhost:9003,localhost:9004"},
    {"job_name", "ps"},
    {"task_index", "0"},
    {"per_process_gpu_memory_fraction", "0.2"},
    {"model", "softmax"},
    {"loss", "mean"},
    {"optimizer", "sgd"},
    {"learning_rate", "0.01"},
    {"batch_size", "100"},
    {"sampler", "next_batch"},
    {"validation_size", "5000"},
    {"train_steps", "0"},
    {"epochs", "50"},
    {"worker_eval_set", "test"},
    {"log_lines", "async-softmax"},
    {"log_epochs", "10"},
    {"global_step_bytes", "8"},
};

constexpr PresetSetting kK8sAdagrad[] = {
    {"ps", "1"},
    {"workers", "2"},
    {"task_index", "0"},
    {"model", "mlp"},
    {"hidden_units", "100"},
    {"loss", "sum"},
    {"optimizer", "adagrad"},
    {"learning_rate", "0.01"},
    {"batch_size", "100"},
    {"sampler", "next_batch"},
    {"train_examples", "20000"},
    {"validation_size", "2000"},
    {"train_steps", "10000"},
    {"global_step", "last"},
    {"worker_eval_set", "test"},
    {"worker_eval_steps", "100"},
    {"log_lines", "k8s-adagrad"},
    {"log_step_count_steps", "1"},
    {"data_dir", "/datanfs"},
};

constexpr PresetSetting kMnistReplica[] = {
    {"ps", "1"},
    {"workers", "2"},
    {"ps_hosts", "localhost:2222"},
    {"worker_hosts", "localhost:2223,localhost:2224"},
    {"model", "mlp"},
    {"hidden_units", "100"},
    {"loss", "sum"},
    {"optimizer", "adam"},
    {"learning_rate", "0.01"},
    {"batch_size", "100"},
    {"pull", "view"},  // of 200 steps each counts: a copy is older by the time it is used
    {"sampler", "next_batch"},
    {"validation_size", "5000"},
    {"train_steps", "200"},
    {"worker_eval_set", "validation"},
    {"log_lines", "mnist-replica"},
    {"log_step_count_steps", "1"},
    {"data_dir", "/tmp/mnist-data"},
    {"num_gpus", "0"},
};

constexpr Preset kPresets[] = {
    {"dist-mnist", "MLP of 100 units, Adam, until 20,000 global steps", kDistMnist,
     /*one_folder=*/true},
    {"monitored", "MLP of 100 units, Adam, stops at global step 100,000", kMonitored,
     /*one_folder=*/true},
    {"async-softmax", "softmax regression, SGD, three workers of 50 epochs each", kAsyncSoftmax},
    {"k8s-adagrad", "MLP of 100 units, Adagrad, until 10,000 global steps, evaluated every 100",
     kK8sAdagrad},
    {"mnist-replica", "MLP of 100 units, Adam, until 200 global steps, evaluated on validation",
     kMnistReplica, /*one_folder=*/false, /*gpu_per_worker=*/true},
};

}  // namespace

std::string_view Preset::Find(std::string_view flag) const {
  for (const PresetSetting& setting : settings) {
    if (setting.flag == flag) return setting.value;
  }
  return {};
}

std::span<const Preset> Presets() { return kPresets; }

std::string PresetNames() {
  std::string names;
  for (const Preset& preset : kPresets) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", preset.name);
  }
  return names;
}

Result<const Preset*> FindPreset(std::string_view name) {
  for (const Preset& preset : kPresets) {
    if (preset.name == name) return &preset;
  }
  return InvalidArgument(
      fmt::format("the preset {} is not known: use one of {}", name, PresetNames()));
}

std::string DescribePreset(const Preset& preset, const std::function<bool(std::string_view)>& has) {
  std::string text = fmt::format("{}: {}\n", preset.name, preset.summary);
  for (const PresetSetting& setting : preset.settings) {
    if (has == nullptr || has(setting.flag)) {
      text += fmt::format("  --{}={}\n", setting.flag, setting.value);
    }
  }
  return text;
}

}  // namespace passel
