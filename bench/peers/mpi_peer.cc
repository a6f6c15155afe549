// mpi_peer - push and pull through a one-sided MPI window in shared memory, and rounds by
// allreduce. Started as two ranks by mpirun. Rank 0 owns the values, rank 1 is the client.
//
// A push is MPI_Accumulate(MPI_SUM) of the negative gradient and a flush; a copying pull MPI_Get
// and a flush; a view is the address that MPI_Win_shared_query gives, and MPI_Win_sync. With one
// writer rank 0 waits in a barrier, which keeps its core busy. A round is MPI_Allreduce of the
// gradients and the update of each rank's own values.
//
// --variant tcp: messages by Open MPI's TCP transport instead, as between two hosts (mpirun is told
// to use no other). Rank 1 sends its gradient, rank 0 subtracts it and sends all values back.

#include <mpi.h>

#include "bench/peers/peer.h"

namespace peers {
namespace {

constexpr const char* kMe = "mpi_peer";

// Both ranks run `once` the same number of times: rank 0 says when it is enough, between two turns.
// A sample is one call, or, if `whole_turns`, the time of a turn until both ranks have ended it,
// for one call of each: who waits for whom inside a turn plays no part then.
template <typename Once>
Samples MeasureTogether(double seconds, bool whole_turns, Once&& once) {
  Samples samples;
  for (std::size_t i = 0; i < kWarmUps; ++i) once();
  const std::int64_t end = NowNs() + static_cast<std::int64_t>(1e9 * seconds);
  for (;;) {
    const std::int64_t turn_begin = NowNs();
    for (std::size_t i = 0; i < kTurn; ++i) {
      const std::int64_t begin = NowNs();
      once();
      if (!whole_turns) samples.push_back(1e-3 * static_cast<double>(NowNs() - begin));
    }
    if (whole_turns) {
      MPI_Barrier(MPI_COMM_WORLD);
      samples.push_back(1e-3 * static_cast<double>(NowNs() - turn_begin) / kTurn);
    }
    int enough = NowNs() >= end || samples.size() >= kMost ? 1 : 0;
    MPI_Bcast(&enough, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (enough != 0) return samples;
  }
}

// Ends with a message of nothing.
void ServeMessages(std::size_t elements) {
  const auto count = static_cast<int>(elements);
  std::vector<float> values = InitialValues(elements), gradient(elements);
  for (;;) {
    MPI_Status status;
    int got = 0;
    MPI_Recv(gradient.data(), count, MPI_FLOAT, 1, 0, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_FLOAT, &got);
    if (got == 0) return;
    for (std::size_t i = 0; i < elements; ++i) values[i] -= gradient[i];
    MPI_Send(values.data(), count, MPI_FLOAT, 1, 0, MPI_COMM_WORLD);
  }
}

void AskByMessages(const Options& options) {
  const auto count = static_cast<int>(options.elements);
  const std::vector<float> gradient = Gradient(options.elements);
  std::vector<float> values(options.elements);
  std::int64_t pushes = 0;
  const Samples both = Measure(options.seconds, [&] {
    MPI_Send(gradient.data(), count, MPI_FLOAT, 0, 0, MPI_COMM_WORLD);
    MPI_Recv(values.data(), count, MPI_FLOAT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    ++pushes;
  });
  MPI_Send(gradient.data(), 0, MPI_FLOAT, 0, 0, MPI_COMM_WORLD);
  Verify(kMe, values.data(), options.elements, pushes);
  Print("push+pull", both);
}

int Main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  if (!options.variant.empty() && options.variant != "tcp") Fail(kMe, "--variant must be tcp", 2);
  DieWith(::getppid());
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks != 2) Fail(kMe, "needs two ranks, but got " + std::to_string(ranks), 2);
  // Rank 1 is the client when there is one.
  Pin(kMe, rank == 1 ? options.first_cpu : options.second_cpu);
  if (!options.variant.empty()) {
    if (rank == 0) {
      ServeMessages(options.elements);
    } else {
      AskByMessages(options);
    }
    MPI_Finalize();
    return 0;
  }

  const auto count = static_cast<int>(options.elements);
  const std::size_t bytes = options.elements * sizeof(float);
  float* own = nullptr;
  MPI_Win window;
  if (MPI_Win_allocate_shared(rank == 0 ? static_cast<MPI_Aint>(bytes) : 0, sizeof(float),
                              MPI_INFO_NULL, MPI_COMM_WORLD, &own, &window) != MPI_SUCCESS)
    Fail(kMe, "MPI has no shared-memory window here");
  MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
  if (rank == 0) {
    for (std::size_t i = 0; i < options.elements; ++i) own[i] = InitialValue(i);
  }
  MPI_Win_sync(window);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_sync(window);

  std::vector<float> negative = Gradient(options.elements);
  for (float& value : negative) value = -value;
  std::vector<float> values(options.elements);
  std::int64_t pushes = 0;
  const auto push = [&] {
    MPI_Accumulate(negative.data(), count, MPI_FLOAT, 0, 0, count, MPI_FLOAT, MPI_SUM, window);
    MPI_Win_flush(0, window);
    ++pushes;
  };
  const auto pull = [&] {
    MPI_Get(values.data(), count, MPI_FLOAT, 0, 0, count, MPI_FLOAT, window);
    MPI_Win_flush(0, window);
  };
  Samples pushed, pulled, both, viewed;
  if (rank == 1) {
    push();
    pull();
    Verify(kMe, values.data(), options.elements, pushes);
    MPI_Aint size = 0;
    int unit = 0;
    const float* shared = nullptr;
    const float* first = nullptr;
    viewed = MeasureBatches(options.seconds / 5, 64, [&] {
      MPI_Win_shared_query(window, 0, &size, &unit, &shared);
      MPI_Win_sync(window);
      const float* volatile seen = shared;
      first = seen;
    });
    Verify(kMe, first, options.elements, pushes);
    pushed = Measure(options.seconds, push);
    pulled = Measure(options.seconds, pull);
    both = Measure(options.seconds, [&] {
      pull();
      push();
    });
    pull();
    Verify(kMe, values.data(), options.elements, pushes);
  }
  MPI_Barrier(MPI_COMM_WORLD);

  const Samples two_writers = MeasureTogether(options.seconds, true, push);
  std::int64_t total = 0;
  MPI_Allreduce(&pushes, &total, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
  MPI_Barrier(MPI_COMM_WORLD);
  pull();
  Verify(kMe, values.data(), options.elements, total);
  MPI_Win_unlock_all(window);

  // Both push the same gradient; the mean of the two is the gradient itself.
  const std::vector<float> gradient = Gradient(options.elements);
  std::vector<float> sum(options.elements);
  std::vector<float> mine = InitialValues(options.elements);
  std::int64_t done = 0;
  const Samples rounds = MeasureTogether(options.seconds, false, [&] {
    MPI_Allreduce(gradient.data(), sum.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    float* const to = mine.data();
    const float* const from = sum.data();
    for (std::size_t i = 0; i < options.elements; ++i) to[i] -= 0.5F * from[i];
    ++done;
  });
  Verify(kMe, mine.data(), options.elements, done);

  if (rank == 1) {
    Print("view", viewed);
    Print("push", pushed);
    Print("pull", pulled);
    Print("push+pull", both);
    Print("push, 2 writers", two_writers);
    Print("round of 2", rounds);
  }
  MPI_Win_free(&window);
  MPI_Finalize();
  return 0;
}

}  // namespace
}  // namespace peers

int main(int argc, char** argv) { return peers::Main(argc, argv); }
