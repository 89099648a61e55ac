#include "ddprun/comm/device_mesh.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <utility>

#include "base/joined.h"
#include "comm/core/graph_capture.h"
#include "comm/core/mesh_layout.h"
#include "comm/group/argument_checks.h"
#include "comm/group/connect_group.h"
#include "comm/group/group_state.h"
#include "comm/group/member_processes.h"
#include "comm/group/sub_group.h"
#include "comm/group/verify_across_ranks.h"

namespace ddp {
namespace detail {

/// A dimension of a mesh or slice: one of the whole mesh, or several as one.
struct MeshAxis {
  std::string name{};
  std::vector<size_t> dims{};  ///< of the whole mesh, ascending
};

namespace {

constexpr const char* kOperation = "init_device_mesh";

std::string quoted(const std::string& name) {
  return "'" + name + "'";
}

std::string names_of(const std::vector<MeshAxis>& axes) {
  return joined(axes, ", ", [](const MeshAxis& axis) { return quoted(axis.name); });
}

}  // namespace

/// The state that all copies and slices of a mesh share.
class MeshState {
 public:
  struct Settings {
    MeshLayout layout;
    std::vector<std::string> names;
    BackendMap backends;
    std::chrono::milliseconds timeout;
    bool has_own_timeout;                              ///< the timeout is not the group's
    std::vector<ProcessIdentity> processes;            ///< of the group's ranks; empty where they are not known
    c10::intrusive_ptr<c10d::Backend> communicator{};  ///< of which those of all groups are made; null: of none
  };

  MeshState(const GroupHandle& group, Settings settings)
      : group_(group), settings_(std::move(settings)), coordinate_(settings_.layout.coordinate_of(group.rank())) {
    for (size_t dim = 0; dim < settings_.names.size(); ++dim) {
      axes_.push_back({.name = settings_.names[dim], .dims = {dim}});
    }
    const bool has_python_ranks = !ranks_running_python(group).empty();
    connect_ = has_python_ranks || settings_.communicator ? Connect::kAtOnce : Connect::kAtFirstUse;
    // Ranks that run Python do not know this mesh's timeout.
    may_share_ =
        settings_.backends.text() == backends_of(group).text() && (has_python_ranks || !settings_.has_own_timeout);
    for (const MeshAxis& axis : std::vector<MeshAxis>(axes_)) make_groups(axis);
  }

  const GroupHandle& group() const { return group_; }
  const MeshLayout& layout() const { return settings_.layout; }
  bool has_this_rank() const { return coordinate_.has_value(); }
  const std::vector<int>& coordinate() const {
    if (coordinate_) return *coordinate_;
    throw std::runtime_error(who(group_.info()) + " is not in the device mesh, which has " +
                             std::to_string(layout().ranks().size()) + " ranks: it has no coordinates and no groups");
  }
  /// Of the whole mesh, without those of flatten().
  std::vector<MeshAxis> axes() const { return {axes_.begin(), axes_.begin() + layout_dims()}; }

  /// The dimensions of flatten(). Slices know them too, as in torch.distributed.
  std::vector<MeshAxis> flattened() const {
    const std::lock_guard lock(mutex_);
    return {axes_.begin() + layout_dims(), axes_.end()};
  }

  GroupHandle group_along(const MeshAxis& axis) const {
    static_cast<void>(coordinate());
    const std::lock_guard lock(mutex_);
    const auto found = groups_.find(axis.name);
    return found == groups_.end() ? group_ : found->second.handle();
  }

  MeshAxis flatten(const MeshAxis& wanted) {
    verify_equal_across_ranks("the dimensions of DeviceMesh::flatten",
                              {quoted(wanted.name) + " of the dimensions " + joined(wanted.dims)}, group_,
                              settings_.timeout);
    {
      const std::lock_guard lock(mutex_);
      const auto found = std::ranges::find(axes_, wanted.name, &MeshAxis::name);
      if (found != axes_.end()) {
        if (found->dims == wanted.dims) return *found;
        throw std::invalid_argument(who(group_.info()) + ": DeviceMesh::flatten: the name " + quoted(wanted.name) +
                                    " is that of another dimension; choose one that is not among " + names_of(axes_));
      }
    }
    make_groups(wanted);
    const std::lock_guard lock(mutex_);
    axes_.push_back(wanted);
    return wanted;
  }

  void close() {
    std::vector<ProcessGroup*> open;
    {
      const std::lock_guard lock(mutex_);
      for (auto& [name, group] : groups_) open.push_back(&group);
    }
    for (ProcessGroup* group : open) group->close();
  }

 private:
  std::ptrdiff_t layout_dims() const { return static_cast<std::ptrdiff_t>(layout().shape().size()); }

  // All ranks count the groups in the same way, before any of them can fail to connect. Each rank connects its own
  // groups. A second name for the same dimensions has separate groups, since torch.distributed's ranks also count them.
  void make_groups(const MeshAxis& axis) {
    const auto lists = layout().groups_along(axis.dims);
    std::vector<int> all(static_cast<size_t>(group_.size()));
    std::iota(all.begin(), all.end(), 0);
    if (lists.front() == all && may_share_) return;  // the whole group
    std::vector<int64_t> numbers;
    for (size_t list = 0; list < lists.size(); ++list) numbers.push_back(group_.state().next_subgroup());
    if (settings_.communicator && !has_this_rank()) return split_as_non_member(group_, *settings_.communicator);
    int color = 0;
    for (size_t list = 0; list < lists.size(); ++list) {
      const std::vector<int>& ranks = lists[list];
      SubGroupPlan plan{.number = numbers[list],
                        .ranks = ranks,
                        .backends = settings_.backends,
                        .timeout = settings_.timeout,
                        .subject = "device mesh: could not connect ranks " + text_of_ranks(ranks) + " of dimension " +
                                   quoted(axis.name),
                        .split = {.from = settings_.communicator, .color = color++}};
      if (std::ranges::find(ranks, group_.rank()) == ranks.end()) continue;
      if (!settings_.processes.empty()) {
        for (const int rank : ranks) plan.processes.push_back(settings_.processes[static_cast<size_t>(rank)]);
      }
      ProcessGroup group = make_sub_group(group_, std::move(plan), connect_);
      const std::lock_guard lock(mutex_);
      groups_.emplace(axis.name, std::move(group));
    }
  }

  const GroupHandle group_;
  const Settings settings_;
  const std::optional<std::vector<int>> coordinate_;
  Connect connect_ = Connect::kAtFirstUse;
  bool may_share_ = false;  // a dimension that has all ranks: the connections of `group_`
  mutable std::mutex mutex_;
  std::vector<MeshAxis> axes_;                    // first those of the layout, then those of flatten()
  std::map<std::string, ProcessGroup> groups_{};  // by the dimension's name; without that of the whole group
};

namespace {

void check_shape(const GroupHandle& group, const std::vector<int>& shape, const std::vector<std::string>& names) {
  if (shape.empty()) refuse(group, kOperation, "the mesh has no dimension");
  int64_t size = 1;
  for (const int length : shape) {
    if (length < 1) refuse(group, kOperation, "expected sizes above 0, got (" + joined(shape) + ")");
    size *= length;
    if (size > group.size()) break;
  }
  if (size > group.size()) {
    refuse(group, kOperation,
           "a mesh of shape (" + joined(shape) + ") needs more ranks than the group's " + std::to_string(group.size()));
  }
  if (!names.empty() && names.size() != shape.size()) {
    refuse(group, kOperation,
           "expected a name for each of the " + std::to_string(shape.size()) + " dimensions, got " +
               std::to_string(names.size()));
  }
  std::set<std::string> known;
  for (const std::string& name : names) {
    if (name.empty()) refuse(group, kOperation, "a dimension's name is empty");
    if (!known.insert(name).second) refuse(group, kOperation, "two dimensions have the name " + quoted(name));
  }
}

// Numbers the hosts in the order in which they first occur, and returns the number for each rank.
std::vector<int> host_numbers(const std::vector<ProcessIdentity>& processes, size_t ranks) {
  std::map<std::string, int> numbers;
  std::vector<int> hosts(ranks, 0);
  for (size_t rank = 0; rank < ranks && rank < processes.size(); ++rank) {
    hosts[rank] = numbers.try_emplace(processes[rank].host, static_cast<int>(numbers.size())).first->second;
  }
  return hosts;
}

// "3, 5": how many ranks each host has.
std::string ranks_per_host(const std::vector<int>& hosts) {
  std::map<int, int> counts;
  for (const int host : hosts) ++counts[host];
  return joined(counts, ", ", [](const auto& count) { return std::to_string(count.second); });
}

std::vector<int> arrange(const GroupHandle& group, const std::vector<int>& shape, const std::string& inner_name,
                         const std::vector<ProcessIdentity>& processes, bool keep_rank_order) {
  std::vector<int> ranks(static_cast<size_t>(std::accumulate(shape.begin(), shape.end(), 1, std::multiplies<int>())));
  std::iota(ranks.begin(), ranks.end(), 0);
  if (keep_rank_order || processes.empty()) return ranks;
  const std::vector<int> hosts = host_numbers(processes, ranks.size());
  const HostPlacement placement = place_on_hosts(hosts, shape.back());
  if (placement.across_hosts > 0 && is_main_process(group)) {
    std::fprintf(stderr,
                 "ddprun: %s: %s: %d of the %zu groups along dimension %s, of %d ranks each, have ranks of several "
                 "hosts, and their collectives use the network: the hosts have %s ranks. Give each host a multiple of "
                 "%d ranks\n",
                 who(group.info()).c_str(), kOperation, placement.across_hosts,
                 ranks.size() / static_cast<size_t>(shape.back()), quoted(inner_name).c_str(), shape.back(),
                 ranks_per_host(hosts).c_str(), shape.back());
  }
  return placement.ranks;
}

}  // namespace
}  // namespace detail

DeviceMesh::DeviceMesh(std::shared_ptr<detail::MeshState> state, std::vector<detail::MeshAxis> axes)
    : state_(std::move(state)), axes_(std::move(axes)) {}
DeviceMesh::~DeviceMesh() = default;
DeviceMesh::DeviceMesh(const DeviceMesh& other) = default;
DeviceMesh& DeviceMesh::operator=(const DeviceMesh& other) = default;
DeviceMesh::DeviceMesh(DeviceMesh&& other) noexcept = default;
DeviceMesh& DeviceMesh::operator=(DeviceMesh&& other) noexcept = default;

detail::MeshAxis DeviceMesh::axis(const std::string& name) const {
  std::vector<detail::MeshAxis> known = axes_;
  for (detail::MeshAxis& flat : state_->flattened()) {
    if (std::ranges::find(axes_, flat.name, &detail::MeshAxis::name) == axes_.end()) known.push_back(std::move(flat));
  }
  const auto found = std::ranges::find(known, name, &detail::MeshAxis::name);
  if (found != known.end()) return *found;
  const bool is_slice = axes_.size() < state_->layout().shape().size();
  throw std::invalid_argument(who(group().info()) + ": " + (is_slice ? "this slice of the" : "the") +
                              " device mesh has no dimension " + detail::quoted(name) + "; it has " +
                              detail::names_of(known));
}

int DeviceMesh::ndim() const {
  return static_cast<int>(axes_.size());
}

std::vector<int> DeviceMesh::shape() const {
  std::vector<int> sizes;
  for (const detail::MeshAxis& axis : axes_) sizes.push_back(state_->layout().size_along(axis.dims));
  return sizes;
}

std::vector<std::string> DeviceMesh::names() const {
  std::vector<std::string> names;
  for (const detail::MeshAxis& axis : axes_) names.push_back(axis.name);
  return names;
}

int DeviceMesh::size() const {
  const std::vector<int> sizes = shape();
  return std::accumulate(sizes.begin(), sizes.end(), 1, std::multiplies<int>());
}

int DeviceMesh::size(const std::string& dimension) const {
  return state_->layout().size_along(axis(dimension).dims);
}

bool DeviceMesh::has_this_rank() const {
  return state_->has_this_rank();
}

std::vector<int> DeviceMesh::coordinate() const {
  std::vector<int> places;
  for (const detail::MeshAxis& axis : axes_) {
    places.push_back(state_->layout().place_along(state_->coordinate(), axis.dims));
  }
  return places;
}

int DeviceMesh::coordinate(const std::string& dimension) const {
  return state_->layout().place_along(state_->coordinate(), axis(dimension).dims);
}

std::vector<int> DeviceMesh::ranks() const {
  std::vector<size_t> dims;
  for (const detail::MeshAxis& axis : axes_) dims.insert(dims.end(), axis.dims.begin(), axis.dims.end());
  const bool is_whole = dims.size() == state_->layout().shape().size();
  const std::vector<int> origin(state_->layout().shape().size(), 0);
  return state_->layout().ranks_along(is_whole ? origin : state_->coordinate(), dims);
}

GroupHandle DeviceMesh::operator[](const std::string& dimension) const {
  return state_->group_along(axis(dimension));
}

DeviceMesh DeviceMesh::slice(const std::vector<std::string>& dimensions) const {
  if (dimensions.empty()) detail::refuse(group(), "DeviceMesh::slice", "the list of dimensions is empty");
  std::set<size_t> own;
  for (const detail::MeshAxis& axis : axes_) own.insert(axis.dims.begin(), axis.dims.end());
  std::vector<detail::MeshAxis> axes;
  std::set<size_t> used;
  for (const std::string& name : dimensions) {
    axes.push_back(axis(name));
    for (const size_t dim : axes.back().dims) {
      if (!own.contains(dim)) {
        detail::refuse(group(), "DeviceMesh::slice",
                       "dimension '" + name +
                           "' is not a combination of the dimensions of this slice: " + detail::names_of(axes_));
      }
      if (used.insert(dim).second) continue;
      detail::refuse(
          group(), "DeviceMesh::slice",
          "dimension '" + name + "' has ranks in common with another of (" + detail::joined(dimensions) + ")");
    }
  }
  return {state_, std::move(axes)};
}

DeviceMesh DeviceMesh::flatten(const std::string& name) const {
  detail::MeshAxis flat{.name = name.empty() ? detail::joined(names(), "_") : name};
  for (const detail::MeshAxis& axis : axes_) flat.dims.insert(flat.dims.end(), axis.dims.begin(), axis.dims.end());
  std::ranges::sort(flat.dims);
  return {state_, {state_->flatten(flat)}};
}

const GroupHandle& DeviceMesh::group() const {
  return state_->group();
}

void DeviceMesh::close() {
  state_->close();
}

DeviceMesh init_device_mesh(const GroupHandle& group, const std::vector<int>& shape,
                            const std::vector<std::string>& names, const DeviceMeshOptions& options) {
  detail::GroupState& state = group.state();
  static_cast<void>(state.group(detail::kOperation));  // open
  detail::check_shape(group, shape, names);
  std::vector<std::string> all_names = names;
  for (size_t dim = names.size(); dim < shape.size(); ++dim) all_names.push_back("dim_" + std::to_string(dim));
  detail::refuse_capture(who(group.info()) + ": " + detail::kOperation,
                         "it connects ranks. Make it before the capture");
  const std::vector<int> longest(static_cast<size_t>(*std::ranges::max_element(shape)));
  const BackendMap backends = detail::sub_group_backends(options.backend, longest, group, detail::kOperation);
  const auto timeout = options.timeout.value_or(state.timeout());
  detail::check_timeout(group.info(), detail::kOperation, timeout);
  verify_equal_across_ranks(
      "the arguments of init_device_mesh",
      {"shape (" + detail::joined(shape) + ")", "names (" + detail::joined(all_names) + ")",
       "backend " + backends.text(), std::string("keep_rank_order ") + (options.keep_rank_order ? "true" : "false"),
       std::string("split ") + (options.split ? "true" : "false"),
       "timeout " + (options.timeout ? std::to_string(timeout.count()) + " ms" : "of the group")},
      group, timeout);
  auto processes = detail::member_processes(group, timeout);
  std::vector<int> ranks = detail::arrange(group, shape, all_names.back(), processes, options.keep_rank_order);
  auto communicator = options.split ? detail::communicator_to_split(group, backends) : nullptr;
  auto mesh = std::make_shared<detail::MeshState>(
      group, detail::MeshState::Settings{.layout = detail::MeshLayout(shape, std::move(ranks)),
                                         .names = std::move(all_names),
                                         .backends = backends,
                                         .timeout = timeout,
                                         .has_own_timeout = options.timeout.has_value(),
                                         .processes = std::move(processes),
                                         .communicator = std::move(communicator)});
  std::vector<detail::MeshAxis> axes = mesh->axes();
  return {std::move(mesh), std::move(axes)};
}

}  // namespace ddp
