// The module passel._core: what src/python/passel makes the package of.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <sys/types.h>

#include <algorithm>
#include <csignal>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/errors.h"
#include "python/job.h"
#include "python/reader.h"
#include "python/watch.h"

namespace passel::python {

namespace nb = nanobind;

void Raise(passel_status code, const std::string& sentence) {
  const nb::object error = nb::module_::import_("passel._errors").attr("of")(code, sentence);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

namespace {

std::vector<Variable> Described(std::vector<std::string> names,
                                std::vector<std::vector<std::int64_t>> shapes,
                                const std::vector<int>& groups) {
  std::vector<Variable> variables(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    variables[i].name = std::move(names[i]);
    variables[i].shape = std::move(shapes.at(i));
    variables[i].group = groups.at(i);
    // What is no size at all passel_open() refuses.
    for (const std::int64_t dimension : variables[i].shape) {
      variables[i].elements *= static_cast<std::size_t>(std::max<std::int64_t>(dimension, 1));
    }
  }
  return variables;
}

pid_t g_command = 0;

// Handler of a child. `passel run` signals the whole group: what that asks for is up to the worker.
void OnTerm(int signal, siginfo_t* info, void* /*context*/) {
  if (info->si_pid == g_command) return;
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

void EndByTermOfOthersThan(int command) {
  g_command = command;
  struct sigaction action {};
  action.sa_sigaction = OnTerm;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  ::sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

NB_MODULE(_core, module) {
  // A script's own circle of references, as a hook that knows the optimizer, is no news at its end.
  nb::set_leak_warnings(false);
  module.def("end_by_term_of_others_than", &EndByTermOfOthersThan, nb::arg("command"));
  nb::class_<Job>(module, "Job")
      .def(
          "__init__",
          [](Job* self, std::vector<std::string> settings, std::vector<std::string> names,
             std::vector<std::vector<std::int64_t>> shapes, const std::vector<int>& groups) {
            new (self)
                Job(std::move(settings), Described(std::move(names), std::move(shapes), groups));
          },
          nb::arg("settings"), nb::arg("names"), nb::arg("shapes"), nb::arg("groups"))
      .def("describe", &Job::Describe)
      .def("initialize", &Job::Initialize, nb::arg("values"), nb::arg("step").none(),
           nb::arg("names"), nb::arg("slots"), nb::arg("timeout"))
      .def("beginning", &Job::Beginning)
      .def("read_state", &Job::ReadState)
      .def("pull", &Job::Pull, nb::arg("how"))
      .def("gradients", &Job::Gradients)
      .def("moves", &Job::Moves)
      .def("zero_gradients", &Job::ZeroGradients)
      .def("take_gradients", &Job::TakeGradients, nb::arg("watch"), nb::arg("as_they_are"))
      .def("push", &Job::Push, nb::arg("timeout"))
      .def("wait", &Job::Wait, nb::arg("timeout"))
      .def("step", &Job::Step, nb::arg("how"), nb::arg("push_timeout"), nb::arg("wait_timeout"))
      .def("set_rates", &Job::SetRates, nb::arg("rates"))
      .def("sample", &Job::Sample, nb::arg("examples"), nb::arg("batch_size"), nb::arg("epochs"),
           nb::arg("seed"), nb::arg("in_order"))
      .def("next_batch", &Job::NextBatch)
      .def("say_alive", &Job::SayAlive)
      .def("metric", &Job::Metric, nb::arg("name"), nb::arg("value"))
      .def("save", &Job::Save, nb::arg("timeout"))
      .def("leave", &Job::Leave)
      .def("has_left", &Job::HasLeft)
      .def("check_turn", &Job::CheckTurn)
      .def("keep_gradients", &Job::KeepGradients)
      .def("stop", &Job::Stop)
      .def("stopped", &Job::Stopped)
      .def("global_step", &Job::GlobalStep)
      .def("pushed", &Job::Pushed)
      .def("handed_in", &Job::HandedIn)
      .def("mode", &Job::Mode);
  nb::class_<Reader>(module, "Reader")
      .def(nb::init<const std::optional<std::string>&, double>(), nb::arg("job").none(),
           nb::arg("timeout"))
      .def("variables", &Reader::Variables)
      .def("read", &Reader::Read, nb::arg("how"), nb::arg("timeout"))
      .def("values", &Reader::Values)
      .def("wait_version", &Reader::WaitVersion, nb::arg("global_step"), nb::arg("timeout"))
      .def("detach", &Reader::Detach);
  nb::class_<Watch>(module, "Watch")
      .def(nb::init<const nb::list&, const std::vector<bool>&, nb::object>(), nb::arg("parameters"),
           nb::arg("plain"), nb::arg("float32"))
      .def("point", &Watch::Point)
      .def("note_values", &Watch::NoteValues)
      .def("drop_gradients", &Watch::DropGradients)
      .def("changed", &Watch::Changed);
  module.attr("ABI_VERSION") = passel_abi_version();
}

}  // namespace passel::python
