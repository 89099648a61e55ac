// all_reduce, reduce and reduce_scatter.
#include <algorithm>
#include <array>
#include <utility>

#include "comm/shm/collective.h"
#include "comm/shm/collectives.h"
#include "comm/shm/engine.h"

namespace ddp::shm {
namespace {

// Beyond this size the hardware prefetcher is fast enough for consecutive cache lines.
constexpr size_t kSmall = size_t{4} << 10;
// Up to this size every rank combines everything itself, which takes one wait instead of two. With two ranks the
// amount read from the other one is the same, as long as its own data stay in the cache.
constexpr size_t kDirectBytes = size_t{16} << 10;
constexpr size_t kDirectBytesOfTwo = size_t{4} << 20;
constexpr size_t kDirectChunk = size_t{64} << 10;
constexpr int kNoRoot = -1;

struct Range {
  size_t begin;
  size_t end;
};

// Every rank has all numbers of all.
class DirectAllReduce final : public Collective {
 public:
  DirectAllReduce(std::byte* data, size_t count, const ReductionKernel& kernel)
      : Collective({.signature = kernel.signature(
                        {.kind = static_cast<uint8_t>(Kind::kAllReduce), .bytes = count * kernel.element_size()}),
                    .rounds = rounds_of(count * kernel.element_size(), kDirectChunk),
                    .is_inline = count * kernel.element_size() <= kInlineBytes,
                    .is_small = is_small(count * kernel.element_size())}),
        data_(data),
        bytes_(count * kernel.element_size()),
        kernel_(kernel) {}

 private:
  static bool is_small(size_t bytes) { return bytes > kInlineBytes && bytes <= kSmall; }
  Range chunk(uint64_t round) const { return {round * kDirectChunk, std::min(bytes_, (round + 1) * kDirectChunk)}; }

  void fill(const SlotAccess& /*slots*/, uint64_t round, std::byte* slot) override {
    const Range all = chunk(round);
    copy_bytes(slot, data_ + all.begin, all.end - all.begin);
  }
  void take(const SlotAccess& slots, uint64_t round) override {
    constexpr size_t kMaxStackRanks = 8;
    std::array<const std::byte*, kMaxStackRanks> on_stack{};
    std::vector<const std::byte*> on_heap;  // memory costs as much as a small sum
    const auto ranks = static_cast<size_t>(slots.size());
    if (ranks > kMaxStackRanks) on_heap.resize(ranks);
    const std::byte** const sources = ranks > kMaxStackRanks ? on_heap.data() : on_stack.data();
    const Range all = chunk(round);
    const size_t element = kernel_.element_size();
    for (int rank = 0; rank < slots.size(); ++rank) {
      sources[rank] = rank == slots.rank() ? data_ + all.begin : slot(slots, rank, round);
    }
    kernel_.combine(data_ + all.begin, sources, all.begin / element, all.end / element);
  }

  std::byte* const data_;
  const size_t bytes_;
  const ReductionKernel kernel_;
};

// Each rank combines its share of each chunk; the others take it from its slot.
class SharedReduce final : public Collective {
 public:
  SharedReduce(std::byte* data, size_t count, const ReductionKernel& kernel, int root, Place place)
      : Collective({.signature = kernel.signature(
                        {.kind = static_cast<uint8_t>(root == kNoRoot ? Kind::kAllReduce : Kind::kReduce),
                         .root = static_cast<uint16_t>(std::max(root, 0)),
                         .bytes = count * kernel.element_size()}),
                    .rounds = rounds_of(count * kernel.element_size(), chunk_of(count * kernel.element_size())),
                    .combines = true,
                    .takes_from = root == kNoRoot || root == place.rank ? Sources::kAll : Sources::kNone}),
        data_(data),
        bytes_(count * kernel.element_size()),
        chunk_(chunk_of(bytes_)),
        receives_result_(root == kNoRoot || root == place.rank),
        kernel_(kernel),
        place_(place),
        sources_(static_cast<size_t>(place.ranks)) {}

 private:
  // Several chunks, where there is enough for them, so that one rank's copies overlap with another's sums.
  static size_t chunk_of(size_t bytes) {
    constexpr size_t kMinChunk = size_t{16} << 10;
    return std::clamp(aligned(bytes / kSlots, kLine), kMinChunk, kSlotBytes);
  }

  Range chunk(uint64_t round) const { return {round * chunk_, std::min(bytes_, (round + 1) * chunk_)}; }
  // Of a chunk, counted from its beginning.
  Range share(int rank, const Range& chunk) const {
    const size_t bytes = chunk.end - chunk.begin;
    const size_t each = aligned((bytes + place_.ranks - 1) / place_.ranks, kLine);
    const auto number = static_cast<size_t>(rank);
    return {std::min(bytes, number * each), std::min(bytes, (number + 1) * each)};
  }

  void fill(const SlotAccess& /*slots*/, uint64_t round, std::byte* slot) override {
    const Range all = chunk(round);
    const Range own = share(place_.rank, all);
    copy_bytes(slot, data_ + all.begin, own.begin);
    copy_bytes(slot + own.end, data_ + all.begin + own.end, all.end - all.begin - own.end);
  }

  void combine(const SlotAccess& slots, uint64_t round) override {
    constexpr size_t kPiece = size_t{8} << 10;  // stays in the first-level cache for the copy
    const Range all = chunk(round);
    const Range own = share(place_.rank, all);
    std::byte* result = slot(slots, place_.rank, round);
    const size_t element = kernel_.element_size();
    for (size_t at = own.begin; at < own.end; at += kPiece) {
      const size_t end = std::min(own.end, at + kPiece);
      for (int rank = 0; rank < place_.ranks; ++rank) {
        sources_[static_cast<size_t>(rank)] =
            rank == place_.rank ? data_ + all.begin + at : slot(slots, rank, round) + at;
      }
      kernel_.combine(result + at, sources_.data(), (all.begin + at) / element, (all.begin + end) / element);
      if (receives_result_) copy_bytes(data_ + all.begin + at, result + at, end - at);
    }
  }

  void take(const SlotAccess& slots, uint64_t round) override {
    if (!receives_result_) return;
    const Range all = chunk(round);
    for (int rank = 0; rank < place_.ranks; ++rank) {
      if (rank == place_.rank) continue;
      const Range theirs = share(rank, all);
      copy_bytes(data_ + all.begin + theirs.begin, slot(slots, rank, round) + theirs.begin, theirs.end - theirs.begin);
    }
  }

  std::byte* const data_;
  const size_t bytes_;
  const size_t chunk_;
  const bool receives_result_;
  const ReductionKernel kernel_;
  const Place place_;
  std::vector<const std::byte*> sources_;
};

// Slots have a piece for each rank, which it combines.
class ReduceScatter final : public Collective {
 public:
  ReduceScatter(std::byte* output, std::vector<const std::byte*> inputs, size_t count, const ReductionKernel& kernel,
                Place place)
      : Collective({.signature = kernel.signature(
                        {.kind = static_cast<uint8_t>(Kind::kReduceScatter), .bytes = count * kernel.element_size()}),
                    .rounds = rounds_of(count * kernel.element_size(), piece_of(place))}),
        output_(output),
        inputs_(std::move(inputs)),
        bytes_(count * kernel.element_size()),
        piece_(piece_of(place)),
        kernel_(kernel),
        place_(place),
        sources_(inputs_.size()) {}

 private:
  static size_t piece_of(Place place) { return kSlotBytes / static_cast<size_t>(place.ranks) / kLine * kLine; }
  Range part(uint64_t round) const { return {round * piece_, std::min(bytes_, (round + 1) * piece_)}; }

  void fill(const SlotAccess& /*slots*/, uint64_t round, std::byte* slot) override {
    const Range range = part(round);
    for (size_t rank = 0; rank < inputs_.size(); ++rank) {
      if (static_cast<int>(rank) == place_.rank) continue;
      copy_bytes(slot + rank * piece_, inputs_[rank] + range.begin, range.end - range.begin);
    }
  }
  void take(const SlotAccess& slots, uint64_t round) override {
    const Range range = part(round);
    const auto own = static_cast<size_t>(place_.rank);
    for (size_t rank = 0; rank < inputs_.size(); ++rank) {
      sources_[rank] =
          rank == own ? inputs_[own] + range.begin : slot(slots, static_cast<int>(rank), round) + own * piece_;
    }
    const size_t element = kernel_.element_size();
    kernel_.combine(output_ + range.begin, sources_.data(), range.begin / element, range.end / element);
  }

  std::byte* const output_;
  const std::vector<const std::byte*> inputs_;
  const size_t bytes_;
  const size_t piece_;
  const ReductionKernel kernel_;
  const Place place_;
  std::vector<const std::byte*> sources_;
};

}  // namespace

JointPtr all_reduce(std::byte* data, size_t count, const Reduction& reduction, Place place) {
  const ReductionKernel kernel(reduction, count, place.ranks);
  if (count * kernel.element_size() <= (place.ranks <= 2 ? kDirectBytesOfTwo : kDirectBytes)) {
    return std::make_shared<DirectAllReduce>(data, count, kernel);
  }
  return std::make_shared<SharedReduce>(data, count, kernel, kNoRoot, place);
}

JointPtr all_reduce_now(Engine& engine, std::byte* data, size_t count, const Reduction& reduction, Place place,
                        std::chrono::milliseconds timeout, WaitObserver& observer) {
  const ReductionKernel kernel(reduction, count, place.ranks);
  if (count * kernel.element_size() > kDirectBytes) {
    const JointPtr operation = all_reduce(data, count, reduction, place);
    operation->set_timeout(timeout);
    return engine.run(
        *operation, [&] { return operation; }, &observer);
  }
  DirectAllReduce operation(data, count, kernel);
  operation.set_timeout(timeout);
  return engine.run(
      operation, [&] { return std::make_shared<DirectAllReduce>(operation); }, &observer);
}

JointPtr reduce(std::byte* data, size_t count, const Reduction& reduction, int root, Place place) {
  return std::make_shared<SharedReduce>(data, count, ReductionKernel(reduction, count, place.ranks, Ring::kReduce),
                                        root, place);
}

JointPtr reduce_scatter(std::byte* output, std::vector<const std::byte*> inputs, size_t count,
                        const Reduction& reduction, Place place) {
  const ReductionKernel kernel(reduction, count, place.ranks);
  return std::make_shared<ReduceScatter>(output, std::move(inputs), count, kernel, place);
}

}  // namespace ddp::shm
