// Collectives that move bytes without looking at them: broadcast, all_gather, gather, scatter, all_to_all, barrier.
#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "comm/shm/collective.h"
#include "comm/shm/collectives.h"

namespace ddp::shm {
namespace {

size_t rest_of(size_t bytes, uint64_t round, size_t chunk) {
  return std::min(chunk, bytes - std::min(bytes, round * chunk));
}

Signature signature_of(Kind kind, size_t bytes, int root = 0) {
  return {.kind = static_cast<uint8_t>(kind), .root = static_cast<uint16_t>(root), .bytes = bytes};
}

class Broadcast final : public Collective {
 public:
  Broadcast(std::byte* data, size_t bytes, int root, Place place)
      : Collective({.signature = signature_of(Kind::kBroadcast, bytes, root),
                    .rounds = rounds_of(bytes, kSlotBytes),
                    .is_inline = bytes <= kInlineBytes,
                    .fills = root == place.rank,
                    .takes_from = root == place.rank ? Sources::kNone : Sources::kRoot,
                    .root = root}),
        data_(data),
        bytes_(bytes),
        root_(root),
        is_root_(root == place.rank) {}

 private:
  void fill(const SlotAccess& /*slots*/, uint64_t round, std::byte* slot) override {
    copy_bytes(slot, data_ + round * kSlotBytes, rest_of(bytes_, round, kSlotBytes));
  }
  void take(const SlotAccess& slots, uint64_t round) override {
    if (is_root_) return;
    copy_bytes(data_ + round * kSlotBytes, slot(slots, root_, round), rest_of(bytes_, round, kSlotBytes));
  }

  std::byte* const data_;
  const size_t bytes_;
  const int root_;
  const bool is_root_;
};

// `root` alone takes, or all do without a root.
class Gather final : public Collective {
 public:
  Gather(std::vector<std::byte*> outputs, const std::byte* input, size_t bytes, const Plan& plan)
      : Collective(plan), outputs_(std::move(outputs)), input_(input), bytes_(bytes) {}

  static Plan plan_of(size_t bytes, int root, Place place) {
    const bool is_for_all = root < 0;
    return {.signature = signature_of(is_for_all ? Kind::kAllGather : Kind::kGather, bytes, std::max(root, 0)),
            .rounds = rounds_of(bytes, kSlotBytes),
            .is_inline = bytes <= kInlineBytes,
            .fills = root != place.rank,
            .takes_from = is_for_all || root == place.rank ? Sources::kAll : Sources::kNone};
  }

 private:
  void fill(const SlotAccess& /*slots*/, uint64_t round, std::byte* slot) override {
    copy_bytes(slot, input_ + round * kSlotBytes, rest_of(bytes_, round, kSlotBytes));
  }
  void take(const SlotAccess& slots, uint64_t round) override {
    const size_t begin = round * kSlotBytes;
    for (size_t rank = 0; rank < outputs_.size(); ++rank) {
      const bool is_own = static_cast<int>(rank) == slots.rank();
      const std::byte* from = is_own ? input_ + begin : slot(slots, static_cast<int>(rank), round);
      copy_bytes(outputs_[rank] + begin, from, rest_of(bytes_, round, kSlotBytes));
    }
  }

  const std::vector<std::byte*> outputs_;
  const std::byte* const input_;
  const size_t bytes_;
};

// Slots have a piece for each rank.
class Exchange final : public Collective {
 public:
  Exchange(std::vector<Piece> received, std::vector<Piece> sent, const Plan& plan, Place place)
      : Collective(plan), received_(std::move(received)), sent_(std::move(sent)), piece_(piece_of(place)) {}

  static size_t piece_of(Place place) { return kSlotBytes / static_cast<size_t>(place.ranks) / kLine * kLine; }
  static Plan plan_of(size_t largest, Place place) {
    return {.signature = signature_of(Kind::kAllToAll, largest), .rounds = rounds_of(largest, piece_of(place))};
  }
  static Plan scatter_plan(size_t bytes, int root, Place place) {
    return {.signature = signature_of(Kind::kScatter, bytes, root),
            .rounds = rounds_of(bytes, piece_of(place)),
            .fills = root == place.rank,
            .takes_from = root == place.rank ? Sources::kNone : Sources::kRoot,
            .root = root};
  }

 private:
  // A rank's piece of its own takes no part in the rounds.
  void fill(const SlotAccess& slots, uint64_t round, std::byte* slot) override {
    for (size_t rank = 0; rank < sent_.size(); ++rank) {
      if (static_cast<int>(rank) == slots.rank()) continue;
      copy_bytes(slot + rank * piece_, sent_[rank].data + round * piece_, rest_of(sent_[rank].bytes, round, piece_));
    }
  }
  void take(const SlotAccess& slots, uint64_t round) override {
    const auto own = static_cast<size_t>(slots.rank());
    for (size_t rank = 0; rank < received_.size(); ++rank) {
      const Piece& piece = received_[rank];
      const size_t bytes = rest_of(piece.bytes, round, piece_);
      if (rank != own && bytes > 0) {
        copy_bytes(piece.data + round * piece_, slot(slots, static_cast<int>(rank), round) + own * piece_, bytes);
      }
    }
    if (round == 0 && own < sent_.size() && own < received_.size()) {
      copy_bytes(received_[own].data, sent_[own].data, std::min(received_[own].bytes, sent_[own].bytes));
    }
  }

  const std::vector<Piece> received_;
  const std::vector<Piece> sent_;
  const size_t piece_;
};

// The ranks exchange the sizes of their pieces first: the largest decides the number of rounds, and what a rank sends
// must be what the other one expects.
class UnevenExchange final : public JointOperation {
 public:
  UnevenExchange(std::vector<Piece> received, std::vector<Piece> sent, Place place)
      : received_(std::move(received)), sent_(std::move(sent)), place_(place) {
    for (const Piece& piece : sent_) own_sizes_.push_back(piece.bytes);
    sizes_.resize(own_sizes_.size() * sent_.size());
    std::vector<std::byte*> rows;
    for (size_t rank = 0; rank < sent_.size(); ++rank) {
      rows.push_back(reinterpret_cast<std::byte*>(sizes_.data() + rank * sent_.size()));
    }
    first_ = all_gather(std::move(rows), reinterpret_cast<const std::byte*>(own_sizes_.data()),
                        own_sizes_.size() * sizeof(uint64_t), place);
  }

  void set_purpose(uint16_t purpose) override {
    purpose_ = purpose;
    first_->set_purpose(purpose);
  }
  bool advance(SlotAccess& slots, bool& moved) override {
    if (!second_) {
      if (!first_->advance(slots, moved)) return false;
      check_sizes();
      const auto largest = static_cast<size_t>(*std::ranges::max_element(sizes_));
      second_ = std::make_unique<Exchange>(received_, sent_, Exchange::plan_of(largest, place_), place_);
      second_->set_purpose(purpose_);
    }
    return second_->advance(slots, moved);
  }
  Awaited awaited(const SlotAccess& slots) const override {
    return second_ ? second_->awaited(slots) : first_->awaited(slots);
  }
  bool is_needed_by_others() const override { return !second_ || second_->is_needed_by_others(); }

 private:
  void check_sizes() const {
    for (size_t rank = 0; rank < received_.size(); ++rank) {
      const uint64_t size = sizes_[rank * sent_.size() + static_cast<size_t>(place_.rank)];
      if (size == received_[rank].bytes) continue;
      throw std::runtime_error("rank " + std::to_string(rank) + " sent " + std::to_string(size) + " bytes to rank " +
                               std::to_string(place_.rank) + ", which expected " +
                               std::to_string(received_[rank].bytes));
    }
  }

  const std::vector<Piece> received_;
  const std::vector<Piece> sent_;
  const Place place_;
  std::vector<uint64_t> own_sizes_;  // that this rank sends
  std::vector<uint64_t> sizes_;      // a row for each rank
  uint16_t purpose_ = 0;
  JointPtr first_;
  std::unique_ptr<Exchange> second_;
};

class Barrier final : public Collective {
 public:
  Barrier() : Collective({.signature = signature_of(Kind::kBarrier, 0), .rounds = 1, .is_inline = true}) {}

 private:
  void fill(const SlotAccess& /*slots*/, uint64_t /*round*/, std::byte* /*slot*/) override {}
  void take(const SlotAccess& /*slots*/, uint64_t /*round*/) override {}
};

}  // namespace

JointPtr broadcast(std::byte* data, size_t bytes, int root, Place place) {
  return std::make_shared<Broadcast>(data, bytes, root, place);
}

JointPtr all_gather(std::vector<std::byte*> outputs, const std::byte* input, size_t bytes, Place place) {
  return std::make_shared<Gather>(std::move(outputs), input, bytes, Gather::plan_of(bytes, -1, place));
}

JointPtr gather(std::vector<std::byte*> outputs, const std::byte* input, size_t bytes, int root, Place place) {
  return std::make_shared<Gather>(std::move(outputs), input, bytes, Gather::plan_of(bytes, root, place));
}

JointPtr scatter(std::byte* output, std::vector<const std::byte*> inputs, size_t bytes, int root, Place place) {
  std::vector<Piece> sent;
  for (const std::byte* input : inputs) sent.push_back({const_cast<std::byte*>(input), bytes});
  std::vector<Piece> received(static_cast<size_t>(place.ranks));
  received[static_cast<size_t>(root)] = {output, bytes};
  return std::make_shared<Exchange>(std::move(received), std::move(sent), Exchange::scatter_plan(bytes, root, place),
                                    place);
}

JointPtr all_to_all(std::vector<Piece> received, std::vector<Piece> sent, bool are_equal, Place place) {
  if (!are_equal) return std::make_shared<UnevenExchange>(std::move(received), std::move(sent), place);
  const size_t bytes = sent.front().bytes;
  return std::make_shared<Exchange>(std::move(received), std::move(sent), Exchange::plan_of(bytes, place), place);
}

JointPtr barrier() {
  return std::make_shared<Barrier>();
}

}  // namespace ddp::shm
