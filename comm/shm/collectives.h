// Internal: the collectives, as operations in shared memory. Memory is the caller's and stays until the operation has
// ended. All ranks start the same ones in the same order. No LibTorch.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "comm/shm/operation.h"
#include "comm/shm/reduction.h"

namespace ddp::shm {

class Engine;
class WaitObserver;

/// Which of how many ranks this is.
struct Place {
  int rank = 0;
  int ranks = 1;
};

struct Piece {
  std::byte* data = nullptr;
  size_t bytes = 0;
};

/// In place, `count` elements.
JointPtr all_reduce(std::byte* data, size_t count, const Reduction& reduction, Place place);
/// The same, done by the caller here and now. Null where the others had come when they were looked for, else the
/// operation, which has ended.
JointPtr all_reduce_now(Engine& engine, std::byte* data, size_t count, const Reduction& reduction, Place place,
                        std::chrono::milliseconds timeout, WaitObserver& observer);
/// In place on `root`; elsewhere `data` stays as it is.
JointPtr reduce(std::byte* data, size_t count, const Reduction& reduction, int root, Place place);
/// `inputs[rank]`: `count` elements for each rank; `output`: those of this rank combined. gloo's order, for one tensor:
/// that of an all_reduce of the whole, of which Reduction says where this rank's elements are; for a list of tensors
/// that of an all_reduce for each rank.
JointPtr reduce_scatter(std::byte* output, std::vector<const std::byte*> inputs, size_t count,
                        const Reduction& reduction, Place place);
/// In place.
JointPtr broadcast(std::byte* data, size_t bytes, int root, Place place);
/// `outputs[rank]` becomes `rank`'s `input`.
JointPtr all_gather(std::vector<std::byte*> outputs, const std::byte* input, size_t bytes, Place place);
/// `outputs` on `root` only.
JointPtr gather(std::vector<std::byte*> outputs, const std::byte* input, size_t bytes, int root, Place place);
/// `inputs` on `root` only.
JointPtr scatter(std::byte* output, std::vector<const std::byte*> inputs, size_t bytes, int root, Place place);
/// `sent[rank]` goes to `rank`, `received[rank]` comes from there. `are_equal`: all pieces of all ranks have one size.
JointPtr all_to_all(std::vector<Piece> received, std::vector<Piece> sent, bool are_equal, Place place);
JointPtr barrier();

}  // namespace ddp::shm
