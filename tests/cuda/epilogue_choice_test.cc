// Which epilogues of the library a step uses, for every answer of the device.

#include "cuda/epilogue_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cuda/engine_under_test.h"
#include "cuda/plans_under_test.h"
#include "cuda/step_plan.h"

namespace passel::cuda {
namespace {

using testing::Each;
using testing::HasSubstr;
using Epilogue = LargeGemm::Epilogue;

std::vector<const LargeGemm*> Products(const Plan& plan) {
  std::vector<const LargeGemm*> products;
  for (const Node& node : plan.nodes()) {
    if (const auto* gemm = std::get_if<LargeGemm>(&node.operation)) products.push_back(gemm);
  }
  return products;
}

int Named(const Plan& plan, const std::string& name) {
  int number = 0;
  for (const Node& node : plan.nodes()) {
    if (node.name == name) return number;
    ++number;
  }
  return -1;
}

// Every set of answers to the nine questions that three large layers raise: for each the plan uses
// exactly what it may.
TEST(EpilogueChoice, FollowsEveryCombinationOfAnswers) {
  StepWorld world({520, 530, 510, 540, 3}, 3, Placement::kRoundRobin, 41, 1);
  Plans plans(world.options);
  // [layer]: outputs, by which its products are known.
  const std::size_t outputs[] = {530, 510, 540};
  const auto key = [](std::size_t layer, Epilogue epilogue) { return std::pair(layer, epilogue); };
  std::vector<std::pair<std::size_t, Epilogue>> questions;
  for (std::size_t layer = 0; layer < 3; ++layer) {
    for (const Epilogue epilogue : kAsked) {
      if (layer < 2 || epilogue == Epilogue::kSums) questions.push_back(key(layer, epilogue));
    }
  }
  ASSERT_EQ(questions.size(), 9u);
  std::set<std::vector<bool>> seen;
  for (unsigned answers = 0; answers < 1u << questions.size(); ++answers) {
    SCOPED_TRACE(answers);
    std::map<std::pair<std::size_t, Epilogue>, bool> yes;
    for (std::size_t q = 0; q < questions.size(); ++q) yes[questions[q]] = (answers >> q & 1) != 0;
    const auto chosen = plans.Choose([&](const LargeGemm& gemm) -> Result<Device::Verdict> {
      for (std::size_t layer = 0; layer < 3; ++layer) {
        if (gemm.n == outputs[layer]) {
          EXPECT_TRUE(yes.contains(key(layer, gemm.epilogue)));
          return Device::Verdict{yes[key(layer, gemm.epilogue)], "the test says so"};
        }
      }
      return Internal("a product of no layer");
    });
    ASSERT_EQ(chosen.size(), 4u);
    std::size_t refused = 0;  // of what was asked for: a line for each
    EXPECT_EQ(chosen[3], LayerEpilogues{});
    for (std::size_t layer = 0; layer < 3; ++layer) {
      const bool keeps = layer < 2 && yes[key(layer, Epilogue::kBiasReluMask)];
      const bool with_mask = keeps && yes[key(layer, Epilogue::kMaskSums)];
      const bool mask = with_mask || (keeps && yes[key(layer, Epilogue::kMask)]);
      const bool sums = !with_mask && yes[key(layer, Epilogue::kSums)];
      EXPECT_EQ(chosen[layer], (LayerEpilogues{mask, with_mask, sums})) << "layer " << layer;
      seen.insert({layer < 2, mask, with_mask, sums});
      refused += !keeps ? (layer < 2 ? 1 : 0) : (with_mask ? 0 : 1) + (mask ? 0 : 1);
      refused += with_mask || sums ? 0 : 1;
    }
    // The plan holds these, and the kernels that do the rest.
    const Plan plan = plans.Build(chosen);
    std::multiset<std::pair<std::size_t, Epilogue>> wanted, got;
    for (std::size_t layer = 0; layer < 3; ++layer) {
      if (chosen[layer].mask) {
        wanted.insert(key(layer, Epilogue::kBiasReluMask));
        wanted.insert(
            key(layer, chosen[layer].sums_with_mask ? Epilogue::kMaskSums : Epilogue::kMask));
      }
      if (chosen[layer].sums) wanted.insert(key(layer, Epilogue::kSums));
      if (layer < 2) {
        EXPECT_EQ(Named(plan, "backward relu " + std::to_string(layer + 1)) < 0,
                  chosen[layer].mask);
      }
      EXPECT_EQ(Named(plan, "backward bias " + std::to_string(layer)) < 0,
                chosen[layer].sums || chosen[layer].sums_with_mask);
    }
    for (const LargeGemm* gemm : Products(plan)) {
      for (std::size_t layer = 0; layer < 3; ++layer) {
        if (gemm->n == outputs[layer] &&
            (gemm->writes_mask() || gemm->reads_mask() || gemm->has_sums())) {
          got.insert(key(layer, gemm->epilogue));
        }
      }
    }
    EXPECT_EQ(got, wanted);
    EXPECT_THAT(plans.explanations, Each(HasSubstr("since the test says so")));
    EXPECT_EQ(plans.explanations.size(), refused);
  }
  EXPECT_EQ(seen.size(), 5u + 2u);  // with a layer behind it, and without
}

// Weights in three parts are three products; one of them has the sums.
TEST(EpilogueChoice, SumsUpOnceWhereWeightsLieInParts) {
  StepWorld world({520, 530, 3}, 3, Placement::kSplitWeights, 42, 1);
  Plans plans(world.options);
  const Plan plan = plans.Build({{false, false, true}, {}});
  std::multiset<Epilogue> backward;
  for (const LargeGemm* gemm : Products(plan)) {
    if (gemm->transpose_a) backward.insert(gemm->epilogue);
  }
  EXPECT_EQ(backward, (std::multiset<Epilogue>{Epilogue::kNone, Epilogue::kNone, Epilogue::kSums}));
}

TEST(EpilogueChoice, IsOfAllSlots) {
  StepWorld world({520, 530, 3}, 3, Placement::kOneShard, 42, 3);
  Plans plans(world.options);
  int asked = 0;
  const auto chosen = plans.Choose([&](const LargeGemm&) -> Result<Device::Verdict> {
    ++asked;
    return Device::Verdict{asked < 3, "the third slot"};
  });
  EXPECT_EQ(asked, 3);
  EXPECT_EQ(chosen[0], LayerEpilogues{});
  EXPECT_THAT(plans.explanations, testing::ElementsAre(HasSubstr("the third slot")));
}

TEST(EpilogueChoice, AnErrorOfTheDeviceIsOne) {
  StepWorld world({520, 530, 3}, 3, Placement::kOneShard, 42);
  Plans plans(world.options);
  const auto chosen = ChooseEpilogues(
      world.options, plans.memory(), plans.hosts(),
      [](const LargeGemm&) -> Result<Device::Verdict> { return Unavailable("it is gone"); }, {});
  EXPECT_EQ(chosen.status().code(), Code::kUnavailable);
}

TEST(EpilogueChoice, TheVariableSwitchesThemOff) {
  StepWorld world({520, 530, 510, 3}, 3, Placement::kOneShard, 42);
  setenv("PASSEL_CUBLASLT_EPILOGUES", "none", 1);
  {
    const auto made = Make(world.options, {});
    ASSERT_NE(made->engine, nullptr);
    EXPECT_THAT(made->engine->Describe(), HasSubstr("cuBLASLt (layer 0: none; layer 1: none)"));
    const auto batch = world.RandomBatch();
    ExpectNear(world, RunStep(*made->engine, world, batch, 0), world.Reference(batch));
  }
  setenv("PASSEL_CUBLASLT_EPILOGUES", "some", 1);
  FakeDevice device({});
  const Status refused = CreateDeviceStepEngine(device, world.options, {}).status();
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("is 'some', but it must be 'all' or 'none'"));
  EXPECT_EQ(device.memories_alive(), 0u);
  setenv("PASSEL_CUBLASLT_EPILOGUES", "all", 1);
  EXPECT_THAT(Make(world.options, {})->engine->Describe(), HasSubstr("RELU_AUX_BIAS"));
  unsetenv("PASSEL_CUBLASLT_EPILOGUES");
}

TEST(EpilogueChoice, RefusesToBuildWhatIsNotConsistent) {
  StepWorld world({520, 530, 510, 3}, 3, Placement::kSplit, 42);
  Plans plans(world.options);
  EXPECT_DEATH(plans.Build({{}, {true, false, false}, {}}), "two large layers");
  EXPECT_DEATH(plans.Build({{true, true, false}, {}, {}}), "in one part");
  StepWorld whole({520, 530, 510, 3}, 3, Placement::kOneShard, 42);
  Plans of_whole(whole.options);
  EXPECT_DEATH(of_whole.Build({{false, true, false}, {}, {}}), "go with a mask");
  EXPECT_DEATH(of_whole.Build({{true, true, true}, {}, {}}), "summed up once");
  EXPECT_DEATH(of_whole.Build({{}, {}, {false, false, true}}), "of a large layer");
}

}  // namespace
}  // namespace passel::cuda
