#include "comm/shm/collective.h"

#include <stdexcept>
#include <string>

namespace ddp::shm {
namespace {

constexpr int kExtraSteps = 16;  // some 50 ns

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::kNone:
      return "nothing";
    case Kind::kAllReduce:
      return "all_reduce";
    case Kind::kReduce:
      return "reduce";
    case Kind::kReduceScatter:
      return "reduce_scatter";
    case Kind::kBroadcast:
      return "broadcast";
    case Kind::kAllGather:
      return "all_gather";
    case Kind::kGather:
      return "gather";
    case Kind::kScatter:
      return "scatter";
    case Kind::kAllToAll:
      return "all_to_all";
    case Kind::kBarrier:
      return "barrier";
  }
  return "an unknown operation";
}

// "sum of float32", in the order of Operator and DType.
std::string arithmetic_of(const Signature& signature) {
  constexpr const char* kNames[] = {"sum", "average", "product", "minimum", "maximum", "and", "or", "xor"};
  constexpr const char* kDTypeNames[] = {"float32", "float64", "float16", "bfloat16",
                                         "int8",    "uint8",   "int32",   "int64"};
  return std::string(kNames[signature.op % 8]) + " of " + kDTypeNames[signature.dtype % 8];
}

}  // namespace

std::string text_of(const Signature& signature) {
  const auto kind = static_cast<Kind>(signature.kind);
  std::string text = name_of(kind);
  if (kind == Kind::kBarrier) return text;
  if (kind == Kind::kAllReduce || kind == Kind::kReduce || kind == Kind::kReduceScatter) {
    text += " (" + arithmetic_of(signature) + ")";
  }
  text += " of " + std::to_string(signature.bytes) + " bytes";
  const bool has_root =
      kind == Kind::kReduce || kind == Kind::kBroadcast || kind == Kind::kGather || kind == Kind::kScatter;
  if (has_root) text += ", root " + std::to_string(signature.root);
  if (signature.purpose != 0) text += ", for a gradient through collective " + std::to_string(signature.purpose - 1);
  return text;
}

bool Collective::advance(SlotAccess& slots, bool& moved) {
  if (!base_) {
    base_ = slots.claim(plan_.rounds);
    moved = true;
  }
  while (step(slots)) moved = true;
  // What comes at once is seen sooner from here than from the driver's next turn.
  for (int look = 0; look < kExtraSteps && !moved; ++look) moved = step(slots);
  return taken_ == plan_.rounds;
}

// The oldest round first: it frees slots.
bool Collective::step(SlotAccess& slots) {
  const uint64_t base = *base_;
  if (taken_ < readable_rounds() && may_take(slots)) {
    take(slots, taken_);
    slots.taken(base + taken_++);
    return true;
  }
  if (plan_.combines && combined_ < filled_ && may_combine(slots)) {
    combine(slots, combined_);
    slots.combined(base + combined_++);
    return true;
  }
  if (filled_ == plan_.rounds) return false;
  if (!plan_.fills) {
    filled_ = plan_.rounds;
    return true;
  }
  // The others may have no need of what this rank puts into its slot when it combines: it has to have done so itself,
  // and they may have reached that round since it looked.
  if (filled_ == taken_ + kSlots || !slots.has_slot(base + filled_)) return false;
  fill(slots, filled_, slot(slots, slots.rank(), filled_));
  slots.filled(base + filled_++, plan_.signature);
  return true;
}

bool Collective::takes_from(const SlotAccess& slots, int rank) const {
  if (rank == slots.rank() || plan_.takes_from == Sources::kNone) return false;
  return plan_.takes_from == Sources::kAll || rank == plan_.root;
}

bool Collective::may_take(SlotAccess& slots) const {
  const uint64_t round = *base_ + taken_;
  for (int rank = 0; rank < slots.size(); ++rank) {
    if (!takes_from(slots, rank)) continue;
    if (plan_.combines) {
      if (!slots.has_combined(rank, round)) return false;
      continue;
    }
    if (plan_.is_small) slots.expect_data(rank, round, plan_.signature.bytes);
    if (!slots.has_filled(rank, round)) return false;
    check_signature(slots, rank, round);
  }
  return true;
}

bool Collective::may_combine(SlotAccess& slots) const {
  const uint64_t round = *base_ + combined_;
  for (int rank = 0; rank < slots.size(); ++rank) {
    if (rank == slots.rank()) continue;
    if (!slots.has_filled(rank, round)) return false;
    check_signature(slots, rank, round);
  }
  return true;
}

void Collective::check_signature(SlotAccess& slots, int rank, uint64_t round) const {
  const Signature& theirs = slots.signature_of(rank, round);
  if (theirs == plan_.signature) return;
  throw std::runtime_error("rank " + std::to_string(rank) + " called " + text_of(theirs) + ", rank " +
                           std::to_string(slots.rank()) + " " + text_of(plan_.signature) +
                           ": all ranks must call the same collective");
}

Awaited Collective::awaited(const SlotAccess& slots) const {
  Awaited awaited;
  if (!base_) return awaited;
  const bool is_for_combined = awaits_combined();
  const bool is_for_fill = !is_for_combined && taken_ < filled_;
  const uint64_t round = *base_ + (plan_.combines && !is_for_combined ? combined_ : taken_);
  if (is_for_combined || is_for_fill) {
    for (int rank = 0; rank < slots.size(); ++rank) {
      const bool concerns = is_for_fill && plan_.combines ? rank != slots.rank() : takes_from(slots, rank);
      const bool is_there = is_for_combined ? slots.has_combined(rank, round) : slots.has_filled(rank, round);
      if (concerns && !is_there) awaited.ranks.push_back(rank);
    }
    if (!awaited.ranks.empty()) awaited.condition = WaitCondition::data_of(awaited.ranks.front());
    return awaited;
  }
  const int reader = slots.reader_of_slot(*base_ + filled_);
  if (reader != slots.rank()) {
    awaited.ranks.push_back(reader);
    awaited.condition = WaitCondition::free_slot_of(reader);
  }
  return awaited;
}

// Who fills a later round waits for slots that this rank still reads.
bool Collective::is_needed_by_others() const {
  return filled_ < plan_.rounds || (plan_.combines && combined_ < plan_.rounds) || taken_ + kSlots < plan_.rounds;
}

std::byte* Collective::slot(const SlotAccess& slots, int rank, uint64_t round) const {
  const uint64_t number = *base_ + round;
  if (plan_.is_inline) return slots.segment().slot_header(rank, number).inline_data.data();
  return slots.segment().slot(rank, number);
}

}  // namespace ddp::shm
