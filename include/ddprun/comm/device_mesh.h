// Device meshes: the ranks of a group as an array with named dimensions, and a process group along each of them.
// Reference: torch.distributed.device_mesh.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ddprun/comm/process_group.h>

namespace ddp {

namespace detail {
class MeshState;
struct MeshAxis;
}  // namespace detail

/// Settings of init_device_mesh(), all optional.
struct DeviceMeshOptions {
  /// As ProcessGroupOptions::backend, for the groups of all dimensions; empty: that of the group it is made from.
  std::string backend{};
  /// Longest wait for a peer; default: that of the group it is made from.
  std::optional<std::chrono::milliseconds> timeout{};
  /// Fills the mesh with the ranks in ascending order, as torch.distributed, even where ranks of several hosts then
  /// share a group along the last dimension.
  bool keep_rank_order = false;
  /// On NCCL: connects all groups at once, as parts of the communicator of the group that the mesh is made from; see
  /// NewGroupOptions::split.
  bool split = false;
};

/// An array of ranks with named dimensions, or a slice of one. Along each dimension the ranks that differ in that
/// coordinate alone form a process group. Copies and slices share the groups, which are closed by close() or with the
/// last copy; both must precede the end of the group that the mesh was made from. All functions but close() may be
/// called by any rank at any time, from several threads, and none of them communicates but flatten().
///
/// A group is connected by the first operation on it, which all its ranks must call; until then it has no memory and no
/// thread. With Python ranks in the job, and where DeviceMeshOptions::split works, init_device_mesh() connects all
/// groups.
class DeviceMesh {
 public:
  /// For the library, which makes it.
  DeviceMesh(std::shared_ptr<detail::MeshState> state, std::vector<detail::MeshAxis> axes);
  ~DeviceMesh();
  DeviceMesh(const DeviceMesh& other);
  DeviceMesh& operator=(const DeviceMesh& other);
  DeviceMesh(DeviceMesh&& other) noexcept;
  DeviceMesh& operator=(DeviceMesh&& other) noexcept;

  /// Number of dimensions.
  int ndim() const;
  /// Size of each dimension.
  std::vector<int> shape() const;
  /// Name of each dimension (Python: mesh_dim_names).
  std::vector<std::string> names() const;
  /// Number of ranks: the sizes of all dimensions multiplied.
  int size() const;
  /// Size of one dimension. Throws std::invalid_argument for a name that this mesh or slice does not have, unless it is
  /// that of a dimension of flatten(); so do the functions below.
  int size(const std::string& dimension) const;
  /// Whether this rank is in the mesh: ranks from the product of the sizes on are not, and have no coordinates.
  bool has_this_rank() const;
  /// This rank's place in each dimension. Throws std::runtime_error on a rank that is not in the mesh; so do the
  /// functions below.
  std::vector<int> coordinate() const;
  /// This rank's place in one dimension, which is its rank in the dimension's group (Python: get_local_rank()).
  int coordinate(const std::string& dimension) const;
  /// The ranks of this mesh or slice, row-major (the last dimension fastest), as ranks of group().
  std::vector<int> ranks() const;

  /// The process group along one dimension (Python: get_group()): this rank and those that differ from it in that
  /// coordinate alone, ranked by it. A dimension of flatten() has a group too.
  GroupHandle operator[](const std::string& dimension) const;
  /// The mesh of some dimensions, in the given order, among the ranks that have this rank's coordinates in the others
  /// (Python: mesh["dp", "cp"]). Dimensions of flatten() may be among them, of a slice those that are made of its own
  /// ones; none may occur twice.
  DeviceMesh slice(const std::vector<std::string>& dimensions) const;
  /// One dimension in the place of all of this slice's, with a group for it; afterwards it can be named in the whole
  /// mesh and its slices. `name` is by default the dimensions' names joined by "_". Its ranks are in the order of the
  /// whole mesh. All ranks of group() must call it with the same dimensions and name; the same call again returns the
  /// same dimension. Throws std::invalid_argument for a name that is taken, std::runtime_error when ranks differ.
  DeviceMesh flatten(const std::string& name = "") const;

  /// The group that the mesh was made from.
  const GroupHandle& group() const;

  /// Closes the groups of all dimensions, for all copies and slices. Every rank should call it. Throws what the backend
  /// reports.
  void close();

 private:
  detail::MeshAxis axis(const std::string& name) const;

  std::shared_ptr<detail::MeshState> state_;
  std::vector<detail::MeshAxis> axes_;
};

/// Arranges the ranks of `group` in a mesh of `shape` (sizes above 0), row-major, whose dimensions have `names` (all
/// different; by default "dim_0", "dim_1", …). All ranks of `group` must call it with the same arguments, in the same
/// order as other calls of new_group(); ranks beyond the product of the sizes are not in the mesh.
///
/// Where the group has ranks of several hosts, the ranks are arranged so that those along the last dimension are on one
/// host, if the number of ranks on each host allows it, and otherwise rank 0 says on standard error which do not; with
/// Python ranks in the job the order is theirs. Names of groups in the store are torch.distributed's: ranks that run
/// Python call init_device_mesh() as counterpart, without a device_id in init_process_group(). A dimension that has all
/// ranks of `group` in their order shares its connections, unless the options name another backend or a timeout.
///
/// Throws std::invalid_argument for wrong arguments and std::runtime_error when the ranks' arguments differ.
DeviceMesh init_device_mesh(const GroupHandle& group, const std::vector<int>& shape,
                            const std::vector<std::string>& names = {}, const DeviceMeshOptions& options = {});

}  // namespace ddp
