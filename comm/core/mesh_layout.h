// Which ranks form the groups of a device mesh: arithmetic on rank numbers. Does not use LibTorch.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace ddp::detail {

/// An array of ranks with some dimensions. Dimensions are numbered from 0; `dims` of the functions are ascending.
class MeshLayout {
 public:
  /// `ranks` in row-major order, the last dimension fastest: as many as the sizes of `shape` multiplied.
  MeshLayout(std::vector<int> shape, std::vector<int> ranks);

  const std::vector<int>& shape() const { return shape_; }
  const std::vector<int>& ranks() const { return ranks_; }

  /// The sizes of `dims` multiplied.
  int size_along(const std::vector<size_t>& dims) const;
  /// Where `rank` is, a number for each dimension; nullopt for one that is not in the mesh.
  std::optional<std::vector<int>> coordinate_of(int rank) const;
  /// The number of the place `coordinate` among those along `dims`, row-major.
  int place_along(const std::vector<int>& coordinate, const std::vector<size_t>& dims) const;
  /// The ranks along `dims`, row-major: a list for each place in the other dimensions, these row-major as well.
  std::vector<std::vector<int>> groups_along(const std::vector<size_t>& dims) const;
  /// The ranks along `dims` in the order in which these are given, which need not be ascending, from `coordinate`.
  std::vector<int> ranks_along(const std::vector<int>& coordinate, const std::vector<size_t>& dims) const;

 private:
  size_t index_of(const std::vector<int>& coordinate) const;

  std::vector<int> shape_;
  std::vector<int> ranks_;
};

/// In which order ranks fill a mesh whose last dimension has `inner` places.
struct HostPlacement {
  std::vector<int> ranks{};  ///< row-major
  /// How many of the groups along the last dimension have ranks of several hosts.
  int across_hosts = 0;
};

/// `hosts[r]` is the number of rank r's host. The ranks keep their order if no group along the last dimension then has
/// ranks of several hosts; otherwise each host's ranks fill whole groups first, and what is left over comes last.
HostPlacement place_on_hosts(const std::vector<int>& hosts, int inner);

}  // namespace ddp::detail
