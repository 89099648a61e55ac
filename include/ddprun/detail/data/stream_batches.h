// Batches of a dataset without an index: one thread at a time reads samples in their order, and several make batches of
// them.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <type_traits>
#include <utility>
#include <vector>

#include <ddprun/data/batch.h>
#include <ddprun/detail/data/collate.h>
#include <ddprun/detail/data/pass_stop.h>
#include <ddprun/samplers/stream_sampler.h>

namespace ddp::detail {

/// A batch, and for how many samples it counts; without a batch, the end of the pass.
template <typename Batch>
struct MadeBatch {
  std::optional<Batch> batch{};
  int64_t samples = 0;
};

template <typename Dataset>
using CursorOf = decltype(std::declval<const Dataset&>().open(int64_t{}));

template <typename Dataset>
using StreamSampleOf = std::remove_cvref_t<decltype(*std::declval<CursorOf<Dataset>&>().next())>;

template <typename Dataset>
auto batch_of_samples(const Dataset& dataset, std::span<StreamSampleOf<Dataset>> samples,
                      [[maybe_unused]] int64_t epoch) {
  if constexpr (requires { dataset.make_batch(samples, epoch); }) {
    return dataset.make_batch(samples, epoch);
  } else if constexpr (requires { dataset.make_batch(samples); }) {
    return dataset.make_batch(samples);
  } else {
    std::vector<Batch> parts;
    for (const auto& sample : samples) parts.push_back(parts_of(sample));
    return stacked(parts);
  }
}

template <typename Cursor>
int64_t skip_samples(Cursor& cursor, int64_t count) {
  if constexpr (requires { cursor.skip(count); }) {
    return cursor.skip(count);
  } else {
    int64_t skipped = 0;
    while (skipped < count && cursor.next()) ++skipped;
    return skipped;
  }
}

/// How many samples the parts have, each asked for or counted once. Safe from several threads.
template <typename Dataset>
class PartSizes {
 public:
  explicit PartSizes(const Dataset& dataset) : dataset_(dataset) {}

  int64_t operator()(int64_t part) {
    const std::lock_guard lock(mutex_);
    if (sizes_.size() <= static_cast<size_t>(part)) sizes_.resize(static_cast<size_t>(part) + 1, -1);
    int64_t& size = sizes_[static_cast<size_t>(part)];
    if (size >= 0) return size;
    if constexpr (requires { dataset_.part_size(part); }) {
      size = dataset_.part_size(part);
    } else {
      auto cursor = dataset_.open(part);
      size = skip_samples(cursor, std::numeric_limits<int64_t>::max());
    }
    return size;
  }

 private:
  const Dataset& dataset_;
  std::mutex mutex_;
  std::vector<int64_t> sizes_;
};

/// Reads samples by part and number. Going forward in a part is what its cursor does; going back opens it again.
template <typename Dataset>
class PartReader {
 public:
  using Payload = StreamSampleOf<Dataset>;

  explicit PartReader(const Dataset& dataset) : dataset_(dataset) {}

  std::optional<Payload> read(int64_t part, int64_t number) {
    if (!go_to(part, number)) return std::nullopt;
    std::optional<Payload> sample = cursor_->next();
    if (sample) ++position_;
    return sample;
  }

  int64_t skip(int64_t part, int64_t number, int64_t count) {
    if (!go_to(part, number)) return 0;
    const int64_t skipped = skip_samples(*cursor_, count);
    position_ += skipped;
    return skipped;
  }

 private:
  bool go_to(int64_t part, int64_t number) {
    if (!cursor_ || part != part_ || number < position_) {
      cursor_.reset();  // one file at a time
      cursor_.emplace(dataset_.open(part));
      part_ = part;
      position_ = 0;
    }
    if (position_ < number) position_ += skip_samples(*cursor_, number - position_);
    return position_ == number;
  }

  const Dataset& dataset_;
  std::optional<CursorOf<Dataset>> cursor_;
  int64_t part_ = 0;
  int64_t position_ = 0;  // of the next sample that the cursor gives
};

/// One pass over a stream.
template <typename Dataset>
class StreamBatches {
 public:
  using Sample = StreamSampleOf<Dataset>;
  using Batch = decltype(batch_of_samples(std::declval<const Dataset&>(), std::span<Sample>(), 0));

  StreamBatches(const Dataset& dataset, std::shared_ptr<PartSizes<Dataset>> sizes, StreamSampler& sampler,
                int64_t batch_size, bool drop_last)
      : dataset_(dataset),
        sizes_(std::move(sizes)),
        pass_(sampler.begin_pass(static_cast<int64_t>(dataset.parts()))),
        batch_size_(batch_size),
        drop_last_(drop_last),
        reader_(dataset),
        has_ended_(pass_.is_empty()) {}

  /// Nobody knows how many batches there are.
  int64_t count() const { return std::numeric_limits<int64_t>::max(); }

  /// Threads call it with numbers that follow each other. They take samples in the order of the numbers, and make
  /// batches of them at the same time.
  MadeBatch<Batch> make(int64_t number) {
    std::vector<Sample> samples = take(number);
    if (samples.empty()) return {};
    // A last batch counts as a full one, so that ranks that have used as many batches have one state.
    return {batch_of_samples(dataset_, std::span<Sample>(samples), pass_.epoch()), batch_size_};
  }

  void used(int64_t samples) const { pass_.used(samples); }
  void end() const { pass_.end(); }
  /// Asks the thread that reads samples to stop.
  void interrupt() { stop_.request_stop(); }

 private:
  std::vector<Sample> take(int64_t number) {
    std::unique_lock lock(mutex_);
    turn_.wait(lock, [&] { return number == next_; });  // a lower number is in another thread's hands
    const NextTurn next_turn(*this);
    std::vector<Sample> samples;
    if (has_ended_ || stop_.stop_requested()) return samples;
    const PassStopScope stop(stop_.get_token());
    try {
      if (!order_) order_ = continued();
      while (static_cast<int64_t>(samples.size()) < batch_size_) {
        auto entry = order_->next(reader_);
        if (!entry) break;
        samples.push_back(std::move(entry->payload));
      }
    } catch (...) {
      has_ended_ = true;
      throw;
    }
    if (static_cast<int64_t>(samples.size()) == batch_size_) return samples;
    has_ended_ = true;
    if (drop_last_) samples.clear();
    return samples;
  }

  class NextTurn {
   public:
    explicit NextTurn(StreamBatches& batches) : batches_(batches) {}
    ~NextTurn() {
      ++batches_.next_;
      batches_.turn_.notify_all();
    }
    NextTurn(const NextTurn&) = delete;
    NextTurn& operator=(const NextTurn&) = delete;

   private:
    StreamBatches& batches_;
  };

  /// The order after what was used before: only the samples in the buffer are read for it.
  StreamOrder<Sample> continued() {
    const StreamPartSize size = [this](int64_t part) { return (*sizes_)(part); };
    const auto plan = std::make_shared<const StreamRankPlan>(pass_.plan(size));
    if (pass_.used_before() == 0) return StreamOrder<Sample>(plan);
    StreamOrder<StreamSizes::Payload> walked(plan);
    StreamSizes sizes(size);
    while (walked.given() < pass_.used_before() && walked.next(sizes)) {
    }
    return StreamOrder<Sample>(walked, reader_);
  }

  const Dataset& dataset_;
  std::shared_ptr<PartSizes<Dataset>> sizes_;
  StreamPass pass_;
  int64_t batch_size_;
  bool drop_last_;
  std::stop_source stop_;
  std::mutex mutex_;
  std::condition_variable turn_;
  int64_t next_ = 0;  // the batch whose samples are taken next
  PartReader<Dataset> reader_;
  std::optional<StreamOrder<Sample>> order_;
  bool has_ended_;
};

}  // namespace ddp::detail
