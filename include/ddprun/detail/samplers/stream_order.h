// Determines which samples of a stream a rank gets and in which order, and how an interrupted order continues. It
// computes with parts (such as files) and the numbers of samples in them. Does not use LibTorch.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <ddprun/samplers/shard.h>

namespace ddp {

enum class StreamSharding;
struct StreamStage;

namespace detail {

/// The position of a sample in a stream: a part, and the sample's number in it.
struct StreamPlace {
  int64_t part = 0;
  int64_t number = 0;
  auto operator<=>(const StreamPlace&) const = default;
};

inline constexpr int64_t kPartEnd = std::numeric_limits<int64_t>::max();

/// Consecutive samples of one part.
struct StreamPiece {
  int64_t part = 0;
  int64_t begin = 0;
  int64_t end = kPartEnd;  ///< kPartEnd: until the end of the part
};

/// The samples that a rank reads: every step-th sample of the concatenated pieces, beginning with `first`.
struct StreamShare {
  std::vector<StreamPiece> pieces{};
  int64_t step = 1;
  int64_t first = 0;
};

/// The rest of an epoch: single samples that were in the buffers of ranks, and pieces that no rank has read.
struct StreamRest {
  std::vector<StreamPiece> singles{};
  std::vector<StreamPiece> unread{};
};

template <typename Payload>
struct StreamEntry {
  StreamPlace place{};
  Payload payload{};
};

/// Iterates over a share. A Reader must have two functions. `std::optional<Payload> read(part, number)` returns nothing
/// if the part has no such sample. `int64_t skip(part, number, count)` returns how many of the `count` samples from
/// `number` on exist.
class StreamSequence {
 public:
  explicit StreamSequence(StreamShare share) : share_(std::move(share)), skip_(share_.first) { enter(0); }

  /// Returns the next sample, or nothing at the end.
  template <typename Reader>
  auto next(Reader& reader) -> std::optional<StreamEntry<typename Reader::Payload>> {
    while (skip_to_next(reader)) {
      const StreamPiece& piece = share_.pieces[piece_];
      if (number_ < piece.end) {
        if (auto payload = reader.read(piece.part, number_)) {
          const StreamPlace place{piece.part, number_++};
          skip_ = share_.step - 1;
          ++taken_;
          return StreamEntry<typename Reader::Payload>{place, *std::move(payload)};
        }
      }
      enter(piece_ + 1);
    }
    return std::nullopt;
  }

  /// Skips `count` samples of the pieces, independent of the step.
  template <typename Reader>
  void skip(int64_t count, Reader& reader) {
    skip_ = count;
    while (skip_ > 0 && skip_to_next(reader)) {
    }
  }

  /// Returns the number of samples that next() has returned.
  int64_t taken() const { return taken_; }
  /// Returns the remaining pieces, as if the step were 1.
  std::vector<StreamPiece> rest() const {
    std::vector<StreamPiece> pieces;
    for (size_t i = piece_; i < share_.pieces.size(); ++i) {
      pieces.push_back(share_.pieces[i]);
      if (i == piece_) pieces.back().begin = number_;
    }
    return pieces;
  }

 private:
  void enter(size_t piece) {
    piece_ = piece;
    if (piece < share_.pieces.size()) number_ = share_.pieces[piece].begin;
  }

  /// Whether there may be a sample at the current position.
  template <typename Reader>
  bool skip_to_next(Reader& reader) {
    while (piece_ < share_.pieces.size()) {
      if (skip_ == 0) return true;
      const StreamPiece& piece = share_.pieces[piece_];
      const int64_t wanted = std::min(skip_, piece.end - number_);
      const int64_t skipped = wanted > 0 ? reader.skip(piece.part, number_, wanted) : 0;
      number_ += skipped;
      skip_ -= skipped;
      if (skip_ > 0) enter(piece_ + 1);
    }
    return false;
  }

  StreamShare share_;
  size_t piece_ = 0;
  int64_t number_ = 0;
  int64_t skip_ = 0;
  int64_t taken_ = 0;
};

/// Random numbers that depend only on the seed, on every machine (splitmix64: Steele, Lea and Flood, "Fast splittable
/// pseudorandom number generators", 2014).
class StreamRandom {
 public:
  explicit StreamRandom(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t value = state_ += 0x9e3779b97f4a7c15;
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
    value = (value ^ value >> 27) * 0x94d049bb133111eb;
    return value ^ value >> 31;
  }

 private:
  uint64_t state_;
};

/// Returns the samples of a sequence in random order. It holds `size` samples, returns a random one, and replaces it by
/// the next sample of the sequence.
template <typename Payload>
class StreamBuffer {
 public:
  StreamBuffer(StreamSequence sequence, int64_t size, uint64_t seed)
      : sequence_(std::move(sequence)), size_(std::max<int64_t>(size, 1)), random_(seed) {}
  /// Continues at the position of another buffer, with different payloads for the same samples.
  template <typename Other>
  StreamBuffer(const StreamBuffer<Other>& other, std::vector<StreamEntry<Payload>> entries)
      : sequence_(other.sequence()), size_(other.size()), random_(other.random()), entries_(std::move(entries)) {}

  template <typename Reader>
  std::optional<StreamEntry<Payload>> next(Reader& reader) {
    if (size_ == 1 && entries_.empty()) return sequence_.next(reader);
    while (std::ssize(entries_) < size_ && !has_ended_) add(reader);
    if (entries_.empty()) return std::nullopt;
    std::swap(entries_[static_cast<size_t>(random_.next() % entries_.size())], entries_.back());
    StreamEntry<Payload> chosen = std::move(entries_.back());
    entries_.pop_back();
    return chosen;
  }

  const std::vector<StreamEntry<Payload>>& entries() const { return entries_; }
  const StreamSequence& sequence() const { return sequence_; }
  int64_t size() const { return size_; }
  const StreamRandom& random() const { return random_; }

 private:
  template <typename Reader>
  void add(Reader& reader) {
    if (auto entry = sequence_.next(reader)) {
      entries_.push_back(*std::move(entry));
    } else {
      has_ended_ = true;
    }
  }

  StreamSequence sequence_;
  int64_t size_;
  StreamRandom random_;
  std::vector<StreamEntry<Payload>> entries_;
  bool has_ended_ = false;
};

/// Describes a rank's samples in a stage of an epoch.
struct StreamRankPlan {
  StreamShare share{};
  StreamShare substitute{};  ///< the samples that a rank without its own samples repeats
  int64_t buffer = 0;
  uint64_t seed = 0;        ///< seed of the buffer
  int64_t most = kPartEnd;  ///< number of samples, if all ranks must get the same number
  bool repeats = false;     ///< starts again until it has returned `most` samples
};

/// Iterates over a rank's samples of a stage.
template <typename Payload>
class StreamOrder {
 public:
  explicit StreamOrder(std::shared_ptr<const StreamRankPlan> plan)
      : plan_(std::move(plan)), buffer_(StreamSequence(plan_->share), plan_->buffer, plan_->seed) {}
  /// Continues at the position of another order. `reader` reads the samples in its buffer, in the order of their
  /// positions in the stream.
  template <typename Other, typename Reader>
  StreamOrder(const StreamOrder<Other>& other, Reader& reader)
      : plan_(other.plan()),
        buffer_(other.buffer(), read_entries(other.buffer().entries(), reader)),
        given_(other.given()),
        pass_(other.pass()),
        given_in_pass_(other.given_in_pass()) {}

  template <typename Reader>
  std::optional<StreamEntry<Payload>> next(Reader& reader) {
    while (given_ < plan_->most) {
      if (auto entry = buffer_.next(reader)) {
        ++given_;
        ++given_in_pass_;
        return entry;
      }
      const bool is_substitute = given_in_pass_ == 0;
      if (!plan_->repeats || (is_substitute && pass_ > 0)) break;
      ++pass_;
      buffer_ = StreamBuffer<Payload>(StreamSequence(is_substitute ? plan_->substitute : plan_->share), plan_->buffer,
                                      plan_->seed + static_cast<uint64_t>(pass_));
      given_in_pass_ = 0;
    }
    return std::nullopt;
  }

  const std::shared_ptr<const StreamRankPlan>& plan() const { return plan_; }
  const StreamBuffer<Payload>& buffer() const { return buffer_; }
  int64_t given() const { return given_; }
  int64_t given_in_pass() const { return given_in_pass_; }
  int64_t pass() const { return pass_; }  ///< if this is above 0, samples are repeated

 private:
  template <typename Other, typename Reader>
  static std::vector<StreamEntry<Payload>> read_entries(const std::vector<StreamEntry<Other>>& others, Reader& reader) {
    std::vector<size_t> order(others.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::sort(order, {}, [&](size_t i) { return others[i].place; });
    std::vector<StreamEntry<Payload>> entries(others.size());
    for (const size_t i : order) {
      const StreamPlace place = others[i].place;
      auto payload = reader.read(place.part, place.number);
      if (!payload) refuse_missing(place);
      entries[i] = {place, *std::move(payload)};
    }
    return entries;
  }
  [[noreturn]] static void refuse_missing(const StreamPlace& place);

  std::shared_ptr<const StreamRankPlan> plan_;
  StreamBuffer<Payload> buffer_;
  int64_t given_ = 0;
  int64_t pass_ = 0;
  int64_t given_in_pass_ = 0;
};

[[noreturn]] void refuse_missing_sample(const StreamPlace& place);

template <typename Payload>
void StreamOrder<Payload>::refuse_missing(const StreamPlace& place) {
  refuse_missing_sample(place);
}

/// A function that returns the number of samples of a part.
using StreamPartSize = std::function<int64_t(int64_t part)>;

/// A Reader without content, for iterating over an order if the sizes of the parts are known.
class StreamSizes {
 public:
  struct Payload {};
  explicit StreamSizes(const StreamPartSize& size) : size_(size) {}
  std::optional<Payload> read(int64_t part, int64_t number) const {
    return number < size_(part) ? std::optional<Payload>(Payload{}) : std::nullopt;
  }
  int64_t skip(int64_t part, int64_t number, int64_t count) const {
    return std::clamp<int64_t>(size_(part) - number, 0, count);
  }

 private:
  const StreamPartSize& size_;
};

/// The values that determine the order of an epoch.
struct StreamEpoch {
  int64_t parts = 0;
  uint64_t seed = 0;
  int64_t epoch = 0;
  bool shuffle = true;  ///< whether the order of the parts is random
  int64_t buffer = 0;
  StreamSharding sharding{};
  Tail tail = Tail::kUneven;
  int num_replicas = 1;
  int rank = 0;
};

/// Returns this rank's plan for the samples that remain after the earlier stages. `stages` are all stages except the
/// one that begins or resumes. Sizes are requested only if they are needed: if there are earlier stages, or if the tail
/// is not uneven.
StreamRankPlan plan_stream(const StreamEpoch& epoch, std::span<const StreamStage> stages, const StreamPartSize& size);

/// Returns the number of samples in this rank's plan, counted from its beginning.
int64_t planned_samples(const StreamRankPlan& plan, const StreamPartSize& size);

}  // namespace detail
}  // namespace ddp
