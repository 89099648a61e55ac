#include "comm/core/mesh_layout.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "tests/support/catch.h"

namespace ddp::detail {
namespace {

using Ranks = std::vector<int>;
using Lists = std::vector<Ranks>;

Ranks counted(int size) {
  Ranks ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

TEST_CASE("MeshLayout: groups along a dimension differ in that coordinate alone") {
  const MeshLayout mesh({2, 4}, counted(8));
  CHECK(mesh.groups_along({0}) == Lists{{0, 4}, {1, 5}, {2, 6}, {3, 7}});
  CHECK(mesh.groups_along({1}) == Lists{{0, 1, 2, 3}, {4, 5, 6, 7}});
  CHECK(mesh.groups_along({0, 1}) == Lists{counted(8)});
  CHECK(mesh.groups_along({}).size() == 8);
}

TEST_CASE("MeshLayout: groups along several dimensions are row-major, as PyTorch's") {
  const MeshLayout mesh({2, 2, 2}, counted(8));
  CHECK(mesh.groups_along({0, 1}) == Lists{{0, 2, 4, 6}, {1, 3, 5, 7}});
  CHECK(mesh.groups_along({0, 2}) == Lists{{0, 1, 4, 5}, {2, 3, 6, 7}});
  CHECK(mesh.groups_along({1}) == Lists{{0, 2}, {1, 3}, {4, 6}, {5, 7}});
}

TEST_CASE("MeshLayout: coordinates and places") {
  const MeshLayout mesh({2, 3}, {5, 4, 3, 2, 1, 0});
  CHECK(mesh.coordinate_of(5) == Ranks{0, 0});
  CHECK(mesh.coordinate_of(1) == Ranks{1, 1});
  CHECK(mesh.coordinate_of(6) == std::nullopt);
  CHECK(mesh.size_along({0, 1}) == 6);
  CHECK(mesh.size_along({}) == 1);
  CHECK(mesh.place_along({1, 2}, {0, 1}) == 5);
  CHECK(mesh.place_along({1, 2}, {1}) == 2);
  CHECK(mesh.ranks_along({1, 0}, {1}) == Ranks{2, 1, 0});
  CHECK(mesh.ranks_along({0, 0}, {1, 0}) == Ranks{5, 2, 4, 1, 3, 0});
}

TEST_CASE("place_on_hosts: ranks keep their order where hosts are whole groups") {
  CHECK(place_on_hosts({0, 0, 0, 0, 1, 1, 1, 1}, 4).ranks == counted(8));
  CHECK(place_on_hosts({0, 0, 1, 1, 1, 1}, 2).ranks == counted(6));
  CHECK(place_on_hosts({0, 1, 2}, 1).ranks == counted(3));
  CHECK(place_on_hosts({}, 2).ranks.empty());
}

TEST_CASE("place_on_hosts: ranks that are dealt out to hosts in turn are collected") {
  const HostPlacement placement = place_on_hosts({0, 1, 0, 1, 0, 1, 0, 1}, 4);
  CHECK(placement.ranks == Ranks{0, 2, 4, 6, 1, 3, 5, 7});
  CHECK(placement.across_hosts == 0);
}

TEST_CASE("place_on_hosts: what does not fit on a host is left for the last groups") {
  const HostPlacement placement = place_on_hosts({0, 1, 0, 1, 0, 1, 0, 1, 1, 1, 2, 2}, 4);
  CHECK(placement.across_hosts == 1);
  CHECK(placement.ranks == Ranks{0, 2, 4, 6, 1, 3, 5, 7, 8, 9, 10, 11});
  // No order is better.
  CHECK(place_on_hosts({0, 0, 0, 1, 1, 1}, 2).across_hosts == 1);
  CHECK(place_on_hosts({0, 0, 0, 1, 1, 1}, 2).ranks == counted(6));
}

TEST_CASE("place_on_hosts: every rank has one place, and no placement is worse than the given order") {
  uint32_t state = 1;
  const auto draw = [&](uint32_t below) {
    return static_cast<int>((state = state * 1664525 + 1013904223) >> 16) % static_cast<int>(below);
  };
  for (int number = 0; number < 500; ++number) {
    const int inner = 1 + draw(4);
    std::vector<int> hosts(static_cast<size_t>(inner * (1 + draw(6))));
    for (int& host : hosts) host = draw(4);
    const HostPlacement placement = place_on_hosts(hosts, inner);
    Ranks sorted = placement.ranks;
    std::ranges::sort(sorted);
    CHECK(sorted == counted(static_cast<int>(hosts.size())));
    int across = 0;
    int across_in_order = 0;
    for (size_t begin = 0; begin < hosts.size(); begin += static_cast<size_t>(inner)) {
      bool differs = false;
      bool differs_in_order = false;
      for (size_t i = begin; i < begin + static_cast<size_t>(inner); ++i) {
        differs |= hosts[static_cast<size_t>(placement.ranks[i])] != hosts[static_cast<size_t>(placement.ranks[begin])];
        differs_in_order |= hosts[i] != hosts[begin];
      }
      across += differs ? 1 : 0;
      across_in_order += differs_in_order ? 1 : 0;
    }
    CHECK(across == placement.across_hosts);
    CHECK(across <= across_in_order);
  }
}

}  // namespace
}  // namespace ddp::detail
