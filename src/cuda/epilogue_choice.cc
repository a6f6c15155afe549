#include "cuda/epilogue_choice.h"

#include <fmt/core.h>

#include <cstdlib>
#include <utility>
#include <variant>

#include "cuda/layer_products.h"

namespace passel::cuda {
namespace {

using Epilogue = LargeGemm::Epilogue;

// The first epilogue of a plan that is refused, and why; kNone if none is.
struct Refusal {
  Epilogue epilogue = Epilogue::kNone;
  std::string why;
};

class Chooser {
 public:
  Chooser(const StepEngineOptions& options, const StepMemory& memory,
          const std::vector<StepHostMemory>& hosts, const AskDevice& ask,
          const std::function<void(std::string_view)>& explain)
      : options_(options), memory_(memory), hosts_(hosts), ask_(ask), explain_(explain) {}

  Result<LayerEpilogues> Choose(std::size_t layer) {
    LayerEpilogues chosen;
    bool mask = CanKeepMask(options_, layer);
    if (mask && CanSumBias(options_, layer)) {
      PASSEL_ASSIGN_OR_RETURN(const Refusal refused, Try(layer, {true, true, false}));
      if (refused.epilogue == Epilogue::kNone) return LayerEpilogues{true, true, false};
      mask = refused.epilogue == Epilogue::kMaskSums;  // else there is no mask to apply
      if (mask) {
        Explain(layer, "tries DRELU and BGRADA instead of DRELU_BGRAD", refused.why);
      } else {
        Explain(layer, "keeps no mask of its ReLU: a kernel of our own looks again", refused.why);
      }
    }
    if (mask) {
      PASSEL_ASSIGN_OR_RETURN(const Refusal refused, Try(layer, {true, false, false}));
      chosen.mask = refused.epilogue == Epilogue::kNone;
      if (!chosen.mask) {
        Explain(layer, "keeps no mask of its ReLU: a kernel of our own looks again", refused.why);
      }
    }
    if (CanSumBias(options_, layer)) {
      PASSEL_ASSIGN_OR_RETURN(const Refusal refused, Try(layer, {false, false, true}));
      chosen.sums = refused.epilogue == Epilogue::kNone;
      if (!chosen.sums) {
        Explain(layer, "has its bias gradient summed up by a kernel of our own", refused.why);
      }
    }
    return chosen;
  }

 private:
  // Asks about the products of a plan with these epilogues for this layer, and none for others.
  Result<Refusal> Try(std::size_t layer, LayerEpilogues tried) {
    std::vector<LayerEpilogues> epilogues(options_.network.layers.size());
    epilogues[layer] = tried;
    for (const StepHostMemory& host : hosts_) {
      const Plan plan = BuildStepPlan(options_, memory_, host, epilogues);
      for (const Node& node : plan.nodes()) {
        const auto* gemm = std::get_if<LargeGemm>(&node.operation);
        if (gemm == nullptr || !gemm->is_optional()) continue;
        PASSEL_ASSIGN_OR_RETURN(Device::Verdict verdict, ask_(*gemm));
        if (!verdict.can) return Refusal{gemm->epilogue, std::move(verdict.text)};
      }
    }
    return Refusal{};
  }

  void Explain(std::size_t layer, std::string_view what, std::string_view why) const {
    if (explain_) explain_(fmt::format("layer {} {}, since {}", layer, what, why));
  }

  const StepEngineOptions& options_;
  const StepMemory& memory_;
  const std::vector<StepHostMemory>& hosts_;
  const AskDevice& ask_;
  const std::function<void(std::string_view)>& explain_;
};

}  // namespace

Result<std::vector<LayerEpilogues>> ChooseEpilogues(
    const StepEngineOptions& options, const StepMemory& memory,
    const std::vector<StepHostMemory>& hosts, const AskDevice& ask,
    const std::function<void(std::string_view)>& explain) {
  const char* const set = std::getenv("PASSEL_CUBLASLT_EPILOGUES");
  const std::string_view wanted = set == nullptr ? "all" : set;
  if (wanted != "all" && wanted != "none") {
    return InvalidArgument(fmt::format(
        "PASSEL_CUBLASLT_EPILOGUES is '{}', but it must be 'all' or 'none': correct or unset it",
        wanted));
  }
  std::vector<LayerEpilogues> epilogues(options.network.layers.size());
  if (wanted == "none") return epilogues;
  Chooser chooser(options, memory, hosts, ask, explain);
  for (std::size_t l = 0; l < epilogues.size(); ++l) {
    PASSEL_ASSIGN_OR_RETURN(epilogues[l], chooser.Choose(l));
  }
  return epilogues;
}

std::string DescribeEpilogues(const StepEngineOptions& options,
                              const std::vector<LayerEpilogues>& epilogues) {
  std::string text;
  for (std::size_t l = 0; l < epilogues.size(); ++l) {
    if (!LibraryComputes(options, l)) continue;
    std::string names;
    const auto add = [&names](Epilogue epilogue) {
      names += names.empty() ? "" : ", ";
      names += EpilogueName(epilogue);
    };
    if (epilogues[l].mask) {
      add(Epilogue::kBiasReluMask);
      add(epilogues[l].sums_with_mask ? Epilogue::kMaskSums : Epilogue::kMask);
    }
    if (epilogues[l].sums) add(Epilogue::kSums);
    text += fmt::format("{}layer {}: {}", text.empty() ? "" : "; ", l,
                        names.empty() ? std::string_view("none") : std::string_view(names));
  }
  return text;
}

}  // namespace passel::cuda
