#include "comm/backends/backend_types.h"

#include <algorithm>
#include <list>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace ddp::detail {

// Each is in the file of its name.
BackendType gloo_backend();
BackendType nccl_backend();
BackendType local_backend();
BackendType shm_backend();

namespace {

struct Table {
  std::mutex mutex;
  std::list<BackendType> types{gloo_backend(), nccl_backend(), local_backend(), shm_backend()};
};

Table& table() {
  static Table known;
  return known;
}

}  // namespace

BackendList known_backends() {
  const std::lock_guard lock(table().mutex);
  BackendList known;
  for (const BackendType& type : table().types) known.push_back(&type.traits);
  return known;
}

const BackendType& type_of(const BackendTraits& traits) {
  const std::lock_guard lock(table().mutex);
  const auto found =
      std::ranges::find_if(table().types, [&](const BackendType& type) { return &type.traits == &traits; });
  if (found == table().types.end()) throw std::logic_error("backend '" + traits.name + "' was never registered");
  return *found;
}

void register_backend(BackendType type) {
  const std::string& name = type.traits.name;
  const auto refuse = [&](const std::string& why) {
    throw std::invalid_argument("register_backend '" + name + "': " + why);
  };
  if (name.empty() || name.find_first_of(":,") != std::string::npos) refuse("expected a name without ':' and ','");
  if (!type.traits.serves_cpu && !type.traits.serves_cuda) refuse("it supports neither the CPU nor CUDA");
  if (!type.make) refuse("its function `make` is empty");
  const std::lock_guard lock(table().mutex);
  const auto same = [&](const BackendType& known) { return known.traits.name == name; };
  if (std::ranges::any_of(table().types, same)) refuse("a backend with that name is already registered");
  table().types.push_back(std::move(type));
}

void check_backends(const BackendMap& backends, const RankInfo& info) {
  for (const BackendTraits* backend : {backends.cuda, backends.cpu}) {
    if (backend == nullptr) continue;
    if (const auto& check = type_of(*backend).check) check(info);
  }
}

}  // namespace ddp::detail
