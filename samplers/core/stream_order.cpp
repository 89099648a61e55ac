#include "ddprun/detail/samplers/stream_order.h"

#include <stdexcept>
#include <string>

#include <ddprun/samplers/stream_sampler.h>

namespace ddp::detail {
namespace {

/// Distributes pieces of one kind. Each kind is distributed separately, so that no rank gets all the parts while
/// another gets all the single samples.
void deal(const std::vector<StreamPiece>& pieces, const StreamEpoch& epoch, std::vector<StreamPiece>& share) {
  for (auto i = static_cast<size_t>(epoch.rank); i < pieces.size(); i += static_cast<size_t>(epoch.num_replicas)) {
    share.push_back(pieces[i]);
  }
}

std::vector<StreamPiece> all_of(const StreamRest& rest) {
  std::vector<StreamPiece> pieces = rest.singles;
  pieces.insert(pieces.end(), rest.unread.begin(), rest.unread.end());
  return pieces;
}

bool is_by_parts(const StreamRest& rest, const StreamEpoch& epoch) {
  if (epoch.sharding != StreamSharding::kAuto) return epoch.sharding == StreamSharding::kParts;
  return std::ssize(rest.unread) >= epoch.num_replicas;
}

StreamShare share_of(const StreamRest& rest, const StreamEpoch& epoch) {
  if (!is_by_parts(rest, epoch)) return {.pieces = all_of(rest), .step = epoch.num_replicas, .first = epoch.rank};
  StreamShare share;
  deal(rest.singles, epoch, share.pieces);
  deal(rest.unread, epoch, share.pieces);
  return share;
}

int64_t samples_in(const StreamShare& share, const StreamPartSize& size) {
  int64_t samples = 0;
  for (const StreamPiece& piece : share.pieces) {
    const int64_t end = piece.end == kPartEnd ? size(piece.part) : piece.end;
    samples += std::max<int64_t>(0, end - piece.begin);
  }
  return std::max<int64_t>(0, samples - share.first + share.step - 1) / share.step;
}

uint64_t buffer_seed(const StreamEpoch& epoch, size_t stage) {
  StreamRandom random(epoch.seed);
  uint64_t seed = random.next();
  for (const uint64_t value : {static_cast<uint64_t>(epoch.epoch), static_cast<uint64_t>(stage),
                               static_cast<uint64_t>(epoch.num_replicas), static_cast<uint64_t>(epoch.rank)}) {
    seed = StreamRandom(seed ^ value).next();
  }
  return seed;
}

StreamRankPlan plan_of(const StreamRest& rest, const StreamEpoch& epoch, size_t stage, const StreamPartSize& size) {
  StreamRankPlan plan{.share = share_of(rest, epoch),
                      .substitute = {.pieces = all_of(rest)},
                      .buffer = epoch.buffer,
                      .seed = buffer_seed(epoch, stage),
                      .repeats = epoch.tail == Tail::kRepeat};
  if (epoch.tail == Tail::kUneven) return plan;
  StreamEpoch other = epoch;
  plan.most = samples_in(plan.share, size);
  for (other.rank = 0; other.rank < epoch.num_replicas; ++other.rank) {
    const int64_t samples = samples_in(share_of(rest, other), size);
    plan.most = plan.repeats ? std::max(plan.most, samples) : std::min(plan.most, samples);
  }
  return plan;
}

/// Returns the data of a stage that remain when each rank has used `used` samples.
StreamRest rest_after(const StreamRest& rest, StreamEpoch epoch, size_t stage, int64_t used,
                      const StreamPartSize& size) {
  StreamRest left;
  StreamSizes sizes(size);
  const bool by_parts = is_by_parts(rest, epoch);
  int64_t taken = 0;
  for (epoch.rank = 0; epoch.rank < epoch.num_replicas; ++epoch.rank) {
    StreamOrder<StreamSizes::Payload> order(std::make_shared<const StreamRankPlan>(plan_of(rest, epoch, stage, size)));
    while (order.given() < used && order.next(sizes)) {
    }
    if (order.pass() > 0) continue;  // a repeated pass contains no samples that remain
    for (const auto& entry : order.buffer().entries()) {
      left.singles.push_back({entry.place.part, entry.place.number, entry.place.number + 1});
    }
    taken = std::max(taken, order.buffer().sequence().taken());
    if (!by_parts) continue;
    for (const StreamPiece& piece : order.buffer().sequence().rest()) {
      (piece.end == kPartEnd ? left.unread : left.singles).push_back(piece);
    }
  }
  if (!by_parts) {
    // All ranks have taken the same number of samples from this sequence, or none of its samples remain.
    StreamSequence sequence({.pieces = all_of(rest)});
    sequence.skip(taken * epoch.num_replicas, sizes);
    for (const StreamPiece& piece : sequence.rest()) {
      (piece.end == kPartEnd ? left.unread : left.singles).push_back(piece);
    }
  }
  std::ranges::sort(left.singles, {}, [](const StreamPiece& piece) { return StreamPlace{piece.part, piece.begin}; });
  return left;
}

}  // namespace

void refuse_missing_sample(const StreamPlace& place) {
  throw std::runtime_error("Loader: sample " + std::to_string(place.number) + " of part " + std::to_string(place.part) +
                           " of the stream is no longer there: use the data of the saved run");
}

StreamRankPlan plan_stream(const StreamEpoch& epoch, std::span<const StreamStage> stages, const StreamPartSize& size) {
  StreamRest rest;
  const auto order = epoch.shuffle ? permutation(epoch.parts, epoch.seed + static_cast<uint64_t>(epoch.epoch))
                                   : ascending(epoch.parts);
  for (const int64_t part : order) rest.unread.push_back({.part = part});
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    StreamEpoch of_stage = epoch;
    of_stage.num_replicas = stages[stage].num_replicas;
    rest = rest_after(rest, of_stage, stage, stages[stage].used, size);
  }
  return plan_of(rest, epoch, stages.size(), size);
}

int64_t planned_samples(const StreamRankPlan& plan, const StreamPartSize& size) {
  const int64_t own = samples_in(plan.share, size);
  if (plan.most == kPartEnd) return own;
  if (!plan.repeats) return std::min(own, plan.most);
  return own > 0 || samples_in(plan.substitute, size) > 0 ? plan.most : 0;
}

}  // namespace ddp::detail
