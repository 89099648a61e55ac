// Internal: the rounds that every collective consists of. In a round ranks fill their slots; then, in those that
// combine, each rank makes its share of the result out of all slots and puts it in its own; then ranks take what they
// need from the slots. Up to kSlots rounds are under way at once, so that copies, sums and waits overlap. No LibTorch.
#pragma once

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "comm/shm/operation.h"

namespace ddp::shm {

/// Of Signature.
enum class Kind : uint8_t {
  kNone,
  kAllReduce,
  kReduce,
  kReduceScatter,
  kBroadcast,
  kAllGather,
  kGather,
  kScatter,
  kAllToAll,
  kBarrier
};

/// "all_reduce of 4096 bytes", "broadcast of 8 bytes from rank 2".
std::string text_of(const Signature& signature);

// Data of at most this size is stored next to the signature of a rank, so that one wait is enough for both.
inline constexpr size_t kInlineBytes = sizeof(SlotHeader::inline_data);

inline uint64_t rounds_of(size_t bytes, size_t chunk) {
  return std::max<uint64_t>(1, (bytes + chunk - 1) / chunk);
}

inline void copy_bytes(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

class Collective : public JointOperation {
 public:
  void set_purpose(uint16_t purpose) final { plan_.signature.purpose = purpose; }
  bool advance(SlotAccess& slots, bool& moved) final;
  Awaited awaited(const SlotAccess& slots) const final;
  bool is_needed_by_others() const final;

 protected:
  enum class Sources { kNone, kAll, kRoot };

  /// What this rank does in each round; `signature`, `rounds` and `is_inline` are equal on all ranks.
  struct Plan {
    Signature signature{};
    uint64_t rounds = 0;
    bool is_inline = false;  ///< what is filled fits SlotHeader::inline_data
    bool is_small = false;   ///< it is some lines in one slot: fetched beside the stamp, not after it
    bool fills = true;
    bool combines = false;
    Sources takes_from = Sources::kAll;
    int root = 0;
  };

  explicit Collective(const Plan& plan) : plan_(plan) {}

  /// `round` counts from 0. `slot` is this rank's.
  virtual void fill(const SlotAccess& slots, uint64_t round, std::byte* slot) = 0;
  virtual void combine(const SlotAccess& /*slots*/, uint64_t /*round*/) {}
  virtual void take(const SlotAccess& slots, uint64_t round) = 0;

  /// What `rank` has in its slot.
  std::byte* slot(const SlotAccess& slots, int rank, uint64_t round) const;

 private:
  bool step(SlotAccess& slots);
  bool takes_from(const SlotAccess& slots, int rank) const;
  bool may_take(SlotAccess& slots) const;
  bool may_combine(SlotAccess& slots) const;
  void check_signature(SlotAccess& slots, int rank, uint64_t round) const;
  uint64_t readable_rounds() const { return plan_.combines ? combined_ : filled_; }
  bool awaits_combined() const { return plan_.combines && taken_ < combined_; }

  Plan plan_;
  std::optional<uint64_t> base_;
  uint64_t filled_ = 0;
  uint64_t combined_ = 0;
  uint64_t taken_ = 0;
};

}  // namespace ddp::shm
