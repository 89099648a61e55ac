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
  /// As ProcessGroupOptions::backend, for the groups of all dimensions; empty: the backend of the group that the mesh
  /// is made from.
  std::string backend{};
  /// Longest wait for a peer; default: the timeout of the group that the mesh is made from.
  std::optional<std::chrono::milliseconds> timeout{};
  /// Fills the mesh with the ranks in ascending order, as torch.distributed does, even if groups along the last
  /// dimension then have ranks on several hosts.
  bool keep_rank_order = false;
  /// On NCCL: connects all groups at once, as parts of the communicator of the group that the mesh is made from; see
  /// NewGroupOptions::split.
  bool split = false;
};

/// An array of ranks with named dimensions, or a slice of one. Along each dimension the ranks that differ in that
/// coordinate alone form a process group. Copies and slices share the groups. close() closes the groups, or the
/// destruction of the last copy does; this must happen before the group that the mesh was made from is closed. Except
/// close() and flatten(), any rank may call any function at any time, from several threads, and no function
/// communicates.
///
/// A group is connected by the first operation on it, which all its ranks must call; until then it has no memory and no
/// thread. With Python ranks in the job, and where DeviceMeshOptions::split works, init_device_mesh() connects all
/// groups.
class DeviceMesh {
 public:
  /// Called by the library; programs do not call it.
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
  /// Size of one dimension. Throws std::invalid_argument for a name that is neither a dimension of this mesh or slice
  /// nor one that flatten() made. The functions below throw the same.
  int size(const std::string& dimension) const;
  /// Whether this rank is in the mesh. Ranks that are not below the product of the sizes are not in it and have no
  /// coordinates.
  bool has_this_rank() const;
  /// This rank's coordinate in each dimension. Throws std::runtime_error on a rank that is not in the mesh; the
  /// functions below do the same.
  std::vector<int> coordinate() const;
  /// This rank's coordinate in one dimension, which is its rank in that dimension's group (Python: get_local_rank()).
  int coordinate(const std::string& dimension) const;
  /// The ranks of this mesh or slice, row-major (the last dimension fastest), as ranks of group().
  std::vector<int> ranks() const;

  /// The process group along one dimension (Python: get_group()). Its members are this rank and the ranks that differ
  /// from it only in that coordinate; the coordinate is the rank in the group. A dimension that flatten() made has a
  /// group too.
  GroupHandle operator[](const std::string& dimension) const;
  /// The mesh of the given dimensions, in the given order. Its ranks have this rank's coordinates in all other
  /// dimensions (Python: mesh["dp", "cp"]). The dimensions may include ones that flatten() made; in a slice, only those
  /// made of the slice's dimensions. No dimension may occur twice.
  DeviceMesh slice(const std::vector<std::string>& dimensions) const;
  /// Combines all dimensions of this slice into one dimension and makes a group for it. Afterwards the whole mesh and
  /// its slices accept the new dimension's name. The default of `name` is the names of the dimensions joined by "_".
  /// The ranks of the new dimension are in the order of the whole mesh. All ranks of group() must call it with the same
  /// dimensions and name; the same call again returns the same dimension. Throws std::invalid_argument for a name that
  /// is taken, std::runtime_error when ranks differ.
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
/// If the group has ranks on several hosts, the ranks are arranged so that each group along the last dimension is on
/// one host. If the numbers of ranks per host do not allow that, rank 0 reports it on standard error. In a job with
/// Python ranks the order is that of torch.distributed. Groups have the same names in the store as with
/// torch.distributed, so ranks that run Python can call init_device_mesh() as the counterpart, without a device_id in
/// init_process_group(). A dimension that has all ranks of `group` in their order shares the connections of `group`,
/// unless the options name another backend or a timeout.
///
/// Throws std::invalid_argument for wrong arguments and std::runtime_error when the ranks' arguments differ.
DeviceMesh init_device_mesh(const GroupHandle& group, const std::vector<int>& shape,
                            const std::vector<std::string>& names = {}, const DeviceMeshOptions& options = {});

}  // namespace ddp
