// The words in shared memory: what is packed comes back, at the limits too.

#include <gtest/gtest.h>

#include <algorithm>

#include "store/mode.h"
#include "store/shard_memory.h"
#include "store/shard_rules.h"

namespace passel {
namespace {

constexpr std::uint32_t kEpochs[] = {0, 1, 2, 0xffff, 0x10000, 0x7fffffff, 0xffffffff};

TEST(Packing, TaskStateComesBack) {
  for (const std::uint32_t epoch : kEpochs) {
    for (int phase = 0; phase <= static_cast<int>(kLastPhase); ++phase) {
      const TaskState state{epoch, static_cast<Phase>(phase)};
      EXPECT_EQ(TaskState::Unpack(state.Pack()), state);
    }
  }
  EXPECT_EQ(TaskState::Unpack(0), (TaskState{0, Phase::kExpected})) << "fresh memory";
}

TEST(Packing, ClaimComesBackAndIsNeverZero) {
  for (const std::uint32_t epoch : kEpochs) {
    for (const int worker : {0, 1, 63, 64, kMaxWorkers - 1}) {
      const Claim claim{epoch, worker};
      EXPECT_NE(claim.Pack(), 0u) << "zero is a free block";
      EXPECT_EQ(Claim::Unpack(claim.Pack()).epoch, epoch);
      EXPECT_EQ(Claim::Unpack(claim.Pack()).worker, worker);
    }
  }
}

TEST(Packing, DecisionComesBackAndGenerationsWrapWithoutTouchingTheRest) {
  constexpr std::uint64_t kLastRound = (std::uint64_t{1} << 40) - 1;
  for (const std::uint64_t round : {std::uint64_t{0}, std::uint64_t{1}, kLastRound}) {
    for (const std::uint32_t generation : {0u, 1u, 0x3ffu}) {
      for (const int worker : {0, 1, kMaxWorkers - 1}) {
        for (const auto& [ends, rates] : {std::pair{0u, 0u}, {1u, 3u}, {15u, 0u}, {15u, 3u}}) {
          const Decision d =
              Decision::Unpack(Decision{round, generation, worker, ends, rates}.Pack());
          EXPECT_EQ(d.rates, rates);
          EXPECT_EQ(d.round, round);
          EXPECT_EQ(d.generation, generation);
          EXPECT_EQ(d.worker, worker);
          EXPECT_EQ(d.ends, ends);
          const Decision next = Decision::Unpack(NextGeneration<Decision>(d.Pack()));
          EXPECT_TRUE(next.SameRoundAs(d));
          EXPECT_EQ(next.generation, (generation + 1) & 0x3ff);
          EXPECT_EQ(next.ends, ends);
          EXPECT_EQ(next.rates, rates);
          EXPECT_NE(next.Pack(), d.Pack());
        }
      }
    }
  }
}

TEST(Packing, ArrivalIsOfOneLifeAndLaterLivesAreLarger) {
  constexpr std::uint64_t kLastRound = (std::uint64_t{1} << 40) - 1;
  for (const std::uint32_t epoch : {1u, 2u, 0xfffffeu}) {
    for (const std::uint64_t round : {std::uint64_t{1}, std::uint64_t{77}, kLastRound}) {
      const std::uint64_t word = Arrival{epoch, round}.Pack();
      EXPECT_TRUE(Arrival::Says(word, epoch, round));
      EXPECT_TRUE(Arrival::Says(word, epoch, round - 1));
      if (round != kLastRound) {
        EXPECT_FALSE(Arrival::Says(word, epoch, round + 1));
      }
      EXPECT_FALSE(Arrival::Says(word, epoch + 1, round));
      EXPECT_FALSE(Arrival::Says(word, epoch - 1, round));
      EXPECT_GT((Arrival{epoch + 1, 1}.Pack()), word);
      EXPECT_GT(word, (Arrival{epoch, round - 1}.Pack()));
    }
  }
  EXPECT_FALSE(Arrival::Says(0, 1, 1)) << "fresh memory";
}

TEST(Packing, TheEndOfAModeIsNeverThatOfItsNeighbours) {
  for (std::uint32_t number = 0; number < 1000; ++number) {
    EXPECT_GE(Decision::EndOf(number), 1u) << "zero is: not the last one";
    EXPECT_LE(Decision::EndOf(number), 15u);
    for (std::uint32_t later = 1; later < 15; ++later) {
      EXPECT_NE(Decision::EndOf(number), Decision::EndOf(number + later));
    }
  }
}

TEST(Packing, ModeWordComesBackAndLaterOnesAreLarger) {
  for (const std::uint32_t number : {0u, 1u, ModeWord::kMaxNumber - 1}) {
    for (const std::uint32_t generation : {0u, 0xffffu}) {
      for (const std::uint32_t scheduled : {0u, static_cast<std::uint32_t>(kMaxScheduledModes)}) {
        for (const ModeSetting& setting :
             {ModeSetting{Mode::kHogwild}, ModeSetting{Mode::kLocked}, ModeSetting{Mode::kBarrier},
              ModeSetting{Mode::kReplicas, 1},
              ModeSetting{Mode::kReplicas, kMaxReplicasToAggregate}, ModeSetting{Mode::kSsp, 0},
              ModeSetting{Mode::kSsp, kMaxStalenessBound}}) {
          const std::uint64_t word = ModeWord{number, generation, scheduled, setting}.Pack();
          const ModeWord back = ModeWord::Unpack(word);
          EXPECT_EQ(back.number, number);
          EXPECT_EQ(back.generation, generation);
          EXPECT_EQ(back.scheduled, scheduled);
          EXPECT_EQ(back.setting, setting);
          EXPECT_GT((ModeWord{number + 1, 0, 0, {}}.Pack()), word);
        }
      }
    }
  }
  ModeWord wrapped{3, 0xffff, 1, {}};
  ++wrapped.generation;
  EXPECT_EQ(ModeWord::Unpack(wrapped.Pack()).number, 3u) << "a generation wraps within its bits";
}

TEST(Packing, AgreedNumberComesBack) {
  constexpr std::uint64_t kMost = (std::uint64_t{1} << 44) - 1;
  static_assert(static_cast<std::uint64_t>(kMaxScheduledStep) < kMost);
  for (const std::uint32_t change : {0u, 1u, ModeWord::kMaxNumber}) {
    for (const std::uint64_t value : {std::uint64_t{0}, std::uint64_t{1}, kMost}) {
      const AgreedNumber back = AgreedNumber::Unpack(AgreedNumber{change, value}.Pack());
      EXPECT_EQ(back.change, change);
      EXPECT_EQ(back.value, value);
    }
  }
}

TEST(Modes, RowsAreThoseOfTheirNames) {
  EXPECT_EQ(TraitsOf(Mode::kHogwild).name, "hogwild");
  EXPECT_EQ(TraitsOf(Mode::kLocked).name, "locked");
  EXPECT_EQ(TraitsOf(Mode::kBarrier).name, "barrier");
  EXPECT_EQ(TraitsOf(Mode::kReplicas).name, "replicas");
  EXPECT_EQ(TraitsOf(Mode::kSsp).name, "ssp");
  EXPECT_EQ(kLastMode, Mode::kSsp);
  EXPECT_EQ(ModeName(static_cast<Mode>(7)), "unknown");
  EXPECT_FALSE(IsRoundMode(static_cast<Mode>(7)));
}

TEST(Modes, ANumberThatIsTheWorkersIsFilledIn) {
  EXPECT_EQ(ModeSetting(Mode::kReplicas).For(5), ModeSetting(Mode::kReplicas, 5));
  EXPECT_EQ(ModeSetting(Mode::kReplicas, 2).For(5), ModeSetting(Mode::kReplicas, 2));
  EXPECT_EQ(ModeSetting(Mode::kSsp).For(5), ModeSetting(Mode::kSsp, 0));
  EXPECT_EQ(ModeSetting(Mode::kBarrier).For(5), ModeSetting(Mode::kBarrier));
}

TEST(Packing, ModeSettingsAreReadAsTheyAreWritten) {
  for (const char* text : {"hogwild", "locked", "barrier", "replicas", "replicas=1",
                           "replicas=65536", "ssp=0", "ssp=1000000"}) {
    const Result<ModeSetting> setting = ParseModeSetting(text);
    ASSERT_TRUE(setting.ok()) << text;
    EXPECT_TRUE(setting->Validate().ok()) << text;
    EXPECT_EQ(setting->ToString(), text);
  }
  EXPECT_EQ(ParseModeSetting("ssp")->number, 3);
  for (const char* wrong : {"", "=", "ssp=", "ssp=-1", "ssp=1000001", "ssp=1x", "ssp= 1", "SSP=1",
                            "replicas=0", "replicas=65537", "replicas=99999999999999999999",
                            "hogwild=", "barrier=3", "locked=0", "ssp=1,", "replicas==2"}) {
    const Result<ModeSetting> setting = ParseModeSetting(wrong);
    ASSERT_FALSE(setting.ok()) << wrong;
    EXPECT_EQ(setting.status().code(), Code::kInvalidArgument);
  }
}

TEST(Packing, ModesAreNamed) {
  for (const Mode mode :
       {Mode::kHogwild, Mode::kLocked, Mode::kBarrier, Mode::kReplicas, Mode::kSsp}) {
    const Result<Mode> parsed = ParseMode(ModeName(mode));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, mode);
  }
  for (const char* wrong : {"", "Hogwild", "barrier ", "SSP", "unknown"}) {
    const Result<Mode> parsed = ParseMode(wrong);
    ASSERT_FALSE(parsed.ok()) << wrong;
    EXPECT_EQ(parsed.status().code(), Code::kInvalidArgument);
    EXPECT_NE(parsed.status().message().find("hogwild, locked, barrier, replicas or ssp"),
              std::string::npos);
  }
}

TEST(Packing, ALaterLifeHasTheLargerClockAndTheSmallerOneIsNotItsOwn) {
  for (const std::uint64_t steps : {0ul, 1ul, 12345678901ul, (1ul << 40) - 1}) {
    for (const std::uint32_t epoch : {1u, 2u, 0xfffffeu}) {
      const std::uint64_t word = Arrival{epoch, steps}.Pack();
      EXPECT_EQ(Arrival::Unpack(word).at, steps);
      EXPECT_TRUE(Arrival::Unpack(word).IsOf(epoch));
      EXPECT_FALSE(Arrival::Unpack(word).IsOf(epoch + 1));
      EXPECT_GT((Arrival{epoch + 1, 0}.Pack()), word);
    }
  }
  EXPECT_FALSE(Arrival::Unpack(0).IsOf(1)) << "fresh memory";
}

TEST(ShardRules, QuotasAddUpToWhatARoundTakes) {
  for (int workers = 1; workers <= 9; ++workers) {
    for (int replicas = 1; replicas <= 40; ++replicas) {
      ShardRules rules;
      rules.mode = {Mode::kReplicas, replicas};
      rules.num_workers = workers;
      int sum = 0;
      for (int k = 0; k < workers; ++k) {
        sum += rules.Quota(k);
        EXPECT_GE(rules.Quota(k), 1);
        EXPECT_LE(rules.Quota(k), rules.Quota(0));
        EXPECT_GE(rules.Quota(k), rules.Quota(0) - 1);
      }
      EXPECT_EQ(sum, std::max(workers, replicas)) << replicas << " of " << workers;
    }
  }
}

}  // namespace
}  // namespace passel
