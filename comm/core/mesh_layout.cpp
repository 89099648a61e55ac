#include "comm/core/mesh_layout.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace ddp::detail {
namespace {

// The next place in row-major order; false after the last one.
bool advance(std::vector<int>& coordinate, const std::vector<int>& shape, const std::vector<size_t>& dims) {
  for (size_t i = dims.size(); i-- > 0;) {
    if (++coordinate[dims[i]] < shape[dims[i]]) return true;
    coordinate[dims[i]] = 0;
  }
  return false;
}

int count_across_hosts(const std::vector<int>& ranks, const std::vector<int>& hosts, int inner) {
  const auto host = [&](size_t place) { return hosts[static_cast<size_t>(ranks[place])]; };
  int count = 0;
  for (size_t begin = 0; begin < ranks.size(); begin += static_cast<size_t>(inner)) {
    bool is_across = false;
    for (size_t place = begin; place < begin + static_cast<size_t>(inner); ++place) {
      is_across = is_across || host(place) != host(begin);
    }
    count += is_across ? 1 : 0;
  }
  return count;
}

}  // namespace

MeshLayout::MeshLayout(std::vector<int> shape, std::vector<int> ranks)
    : shape_(std::move(shape)), ranks_(std::move(ranks)) {}

int MeshLayout::size_along(const std::vector<size_t>& dims) const {
  int size = 1;
  for (const size_t dim : dims) size *= shape_.at(dim);
  return size;
}

std::optional<std::vector<int>> MeshLayout::coordinate_of(int rank) const {
  const auto found = std::ranges::find(ranks_, rank);
  if (found == ranks_.end()) return std::nullopt;
  auto index = static_cast<int>(found - ranks_.begin());
  std::vector<int> coordinate(shape_.size());
  for (size_t dim = shape_.size(); dim-- > 0;) {
    coordinate[dim] = index % shape_[dim];
    index /= shape_[dim];
  }
  return coordinate;
}

int MeshLayout::place_along(const std::vector<int>& coordinate, const std::vector<size_t>& dims) const {
  int place = 0;
  for (const size_t dim : dims) place = place * shape_.at(dim) + coordinate.at(dim);
  return place;
}

std::vector<std::vector<int>> MeshLayout::groups_along(const std::vector<size_t>& dims) const {
  std::vector<size_t> others;
  for (size_t dim = 0; dim < shape_.size(); ++dim) {
    if (std::ranges::find(dims, dim) == dims.end()) others.push_back(dim);
  }
  std::vector<std::vector<int>> groups;
  std::vector<int> coordinate(shape_.size(), 0);
  do {
    groups.push_back(ranks_along(coordinate, dims));
  } while (advance(coordinate, shape_, others));
  return groups;
}

std::vector<int> MeshLayout::ranks_along(const std::vector<int>& coordinate, const std::vector<size_t>& dims) const {
  std::vector<int> place = coordinate;
  for (const size_t dim : dims) place[dim] = 0;
  std::vector<int> ranks;
  do {
    ranks.push_back(ranks_[index_of(place)]);
  } while (advance(place, shape_, dims));
  return ranks;
}

size_t MeshLayout::index_of(const std::vector<int>& coordinate) const {
  std::vector<size_t> all(shape_.size());
  std::iota(all.begin(), all.end(), size_t{0});
  return static_cast<size_t>(place_along(coordinate, all));
}

HostPlacement place_on_hosts(const std::vector<int>& hosts, int inner) {
  std::vector<int> in_order(hosts.size());
  std::iota(in_order.begin(), in_order.end(), 0);
  const int across = count_across_hosts(in_order, hosts, inner);
  if (across == 0) return {.ranks = in_order};
  std::vector<int> by_host = in_order;
  std::vector<int> first_rank(hosts.empty() ? 0 : static_cast<size_t>(*std::ranges::max_element(hosts)) + 1, -1);
  for (const int rank : in_order) {
    int& first = first_rank[static_cast<size_t>(hosts[static_cast<size_t>(rank)])];
    if (first < 0) first = rank;
  }
  const auto first_of_host = [&](int rank) {
    return first_rank[static_cast<size_t>(hosts[static_cast<size_t>(rank)])];
  };
  std::ranges::stable_sort(by_host, {}, first_of_host);
  std::vector<int> whole;
  std::vector<int> rest;
  for (size_t begin = 0; begin < by_host.size();) {
    size_t end = begin;
    while (end < by_host.size() && first_of_host(by_host[end]) == first_of_host(by_host[begin])) ++end;
    const size_t in_groups = (end - begin) / static_cast<size_t>(inner) * static_cast<size_t>(inner);
    whole.insert(whole.end(), by_host.begin() + static_cast<std::ptrdiff_t>(begin),
                 by_host.begin() + static_cast<std::ptrdiff_t>(begin + in_groups));
    rest.insert(rest.end(), by_host.begin() + static_cast<std::ptrdiff_t>(begin + in_groups),
                by_host.begin() + static_cast<std::ptrdiff_t>(end));
    begin = end;
  }
  whole.insert(whole.end(), rest.begin(), rest.end());
  const int left_across = count_across_hosts(whole, hosts, inner);
  if (left_across >= across) return {.ranks = in_order, .across_hosts = across};
  return {.ranks = whole, .across_hosts = left_across};
}

}  // namespace ddp::detail
