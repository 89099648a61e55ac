#include "checkpoint/shards/overlap_search.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace ddp::shards {

std::optional<std::pair<size_t, size_t>> OverlapSearch::find(const std::vector<Chunk>& chunks) {
  chunks_ = &chunks;
  order_.resize(chunks.size());
  std::iota(order_.begin(), order_.end(), size_t{0});
  ranges_.assign(1, {.first = 0, .last = chunks.size()});
  while (!ranges_.empty() && !has_given_up()) {
    const auto range = ranges_.back();
    ranges_.pop_back();
    if (const auto pair = search(range)) return pair;
  }
  return std::nullopt;
}

std::optional<OverlapSearch::Pair> OverlapSearch::search(Range range) {
  constexpr size_t kMaxDirectComparisons = 8;
  if (range.size() <= kMaxDirectComparisons) return compare_all(range);
  const auto dimensions = chunks_->front().box.sizes.size();
  for (size_t dimension = 0; dimension < dimensions; ++dimension) {
    if (divide(range, dimension)) return std::nullopt;
    if (has_given_up()) return std::nullopt;
  }
  return sweep(range);
}

// Divides the range at positions that no chunk crosses, and appends the parts to ranges_. Returns false if there is one
// part only.
bool OverlapSearch::divide(Range range, size_t dimension) {
  sort_edges(range, dimension);
  const auto before = ranges_.size();
  size_t first = 0;
  auto end = edges_.front().end;
  const auto add = [&](size_t last) {
    if (last - first > 1) ranges_.push_back({.first = range.first + first, .last = range.first + last});
    first = last;
  };
  for (size_t i = 1; i < edges_.size(); ++i) {
    if (edges_[i].begin >= end) add(i);
    end = std::max(end, edges_[i].end);
  }
  if (first == 0) return false;
  add(edges_.size());
  if (ranges_.size() == before) return true;  // each chunk is a part of its own
  for (size_t i = 0; i < edges_.size(); ++i) order_[range.first + i] = edges_[i].chunk;
  return true;
}

std::optional<OverlapSearch::Pair> OverlapSearch::compare_all(Range range) {
  steps_left_ -= static_cast<int64_t>(range.size() * range.size());
  for (auto i = range.first; i < range.last; ++i) {
    for (auto k = i + 1; k < range.last; ++k) {
      if (have_common_part((*chunks_)[order_[i]].box, (*chunks_)[order_[k]].box)) return Pair(order_[i], order_[k]);
    }
  }
  return std::nullopt;
}

// Compares each chunk with the earlier chunks that reach its beginning, along the dimension with the most different
// beginnings.
std::optional<OverlapSearch::Pair> OverlapSearch::sweep(Range range) {
  size_t best = 0;
  size_t most = 0;
  for (size_t dimension = 0; dimension < chunks_->front().box.sizes.size(); ++dimension) {
    sort_edges(range, dimension);
    const auto different = begins();
    if (different > most) best = dimension;
    most = std::max(most, different);
  }
  sort_edges(range, best);
  std::vector<Edges> open;
  for (const auto& edges : edges_) {
    std::erase_if(open, [&](const Edges& each) { return each.end <= edges.begin; });
    steps_left_ -= static_cast<int64_t>(open.size());
    if (has_given_up()) return std::nullopt;
    for (const auto& each : open) {
      if (have_common_part((*chunks_)[each.chunk].box, (*chunks_)[edges.chunk].box)) {
        return Pair(std::min(each.chunk, edges.chunk), std::max(each.chunk, edges.chunk));
      }
    }
    open.push_back(edges);
  }
  return std::nullopt;
}

void OverlapSearch::sort_edges(Range range, size_t dimension) {
  edges_.resize(range.size());
  for (size_t i = 0; i < range.size(); ++i) {
    const auto chunk = order_[range.first + i];
    const auto& box = (*chunks_)[chunk].box;
    edges_[i] = {.begin = box.offsets[dimension], .end = box.offsets[dimension] + box.sizes[dimension], .chunk = chunk};
  }
  steps_left_ -= static_cast<int64_t>(range.size());
  const auto is_before = [](const Edges& left, const Edges& right) { return left.begin < right.begin; };
  if (std::is_sorted(edges_.begin(), edges_.end(), is_before)) return;
  steps_left_ -= static_cast<int64_t>(range.size() * static_cast<size_t>(std::bit_width(range.size())));
  std::sort(edges_.begin(), edges_.end(), is_before);
}

// How many different beginnings edges_ has.
size_t OverlapSearch::begins() const {
  size_t different = 0;
  for (size_t i = 0; i < edges_.size(); ++i) different += i == 0 || edges_[i].begin != edges_[i - 1].begin ? 1 : 0;
  return different;
}

}  // namespace ddp::shards
