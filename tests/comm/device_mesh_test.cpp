#include "ddprun/comm/device_mesh.h"

#include <ATen/ops/full.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <ddprun/comm/collectives.h>

#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/every_wire.h"
#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using test::error_of;
using test::here;
using test::run_ranks;

using Places = std::vector<int>;

int sum_over(const GroupHandle& group, int value) {
  at::Tensor tensor = here(at::full({2}, static_cast<float>(value)));
  all_reduce(tensor, group);
  return static_cast<int>(tensor[0].item<float>());
}

class Meshes : protected test::EveryWire {};

TEST_CASE_METHOD(Meshes, "DeviceMesh: a group along each dimension") {
  run(4, [](const GroupHandle& group) {
    const DeviceMesh mesh = init_device_mesh(group, {2, 2}, {"replicate", "shard"});
    const int rank = group.rank();
    RANK_CHECK(mesh.ndim() == 2);
    RANK_CHECK(mesh.shape() == Places{2, 2});
    RANK_CHECK(mesh.names() == std::vector<std::string>{"replicate", "shard"});
    RANK_CHECK(mesh.size() == 4);
    RANK_CHECK(mesh.size("shard") == 2);
    RANK_CHECK(mesh.coordinate() == Places{rank / 2, rank % 2});
    RANK_CHECK(mesh.coordinate("shard") == rank % 2);
    RANK_CHECK(mesh.ranks() == Places{0, 1, 2, 3});
    const GroupHandle replicate = mesh["replicate"];
    const GroupHandle shard = mesh["shard"];
    RANK_CHECK(replicate.rank() == rank / 2);
    RANK_CHECK(shard.rank() == rank % 2);
    RANK_CHECK(sum_over(shard, rank) == (rank < 2 ? 1 : 5));
    RANK_CHECK(sum_over(replicate, rank) == (rank % 2 == 0 ? 2 : 4));
    RANK_CHECK(sum_over(group, rank) == 6);
  });
}

TEST_CASE("DeviceMesh: slices and flattened dimensions") {
  run_ranks(8, [](const GroupHandle& group) {
    const DeviceMesh mesh = init_device_mesh(group, {2, 2, 2}, {"dp", "cp", "tp"});
    const int rank = group.rank();
    const DeviceMesh slice = mesh.slice({"dp", "cp"});
    RANK_CHECK(slice.shape() == Places{2, 2});
    RANK_CHECK(slice.ranks() == Places{rank % 2, rank % 2 + 2, rank % 2 + 4, rank % 2 + 6});
    RANK_CHECK(slice.coordinate() == Places{rank / 4, rank / 2 % 2});
    const DeviceMesh turned = mesh.slice({"tp", "dp"});
    RANK_CHECK(turned.coordinate() == Places{rank % 2, rank / 4});
    const DeviceMesh flat = slice.flatten();
    RANK_CHECK(flat.names() == std::vector<std::string>{"dp_cp"});
    RANK_CHECK(mesh.size("dp_cp") == 4);
    RANK_CHECK(mesh.coordinate("dp_cp") == rank / 2);
    RANK_CHECK(mesh["dp_cp"].rank() == rank / 2);
    RANK_CHECK(get_process_group_ranks(mesh["cp"]) == Places{rank & 5, (rank & 5) + 2});
    RANK_CHECK(get_process_group_ranks(group) == Places{0, 1, 2, 3, 4, 5, 6, 7});
    RANK_CHECK(sum_over(mesh["dp_cp"], rank) == (rank % 2 == 0 ? 12 : 16));
    RANK_CHECK(mesh.slice({"dp_cp", "tp"}).shape() == Places{4, 2});
    RANK_CHECK(slice.flatten("dp_cp").ranks() == flat.ranks());
    RANK_CHECK(sum_over(mesh.slice({"tp", "cp"}).flatten("model")["model"], rank) == (rank < 4 ? 6 : 22));
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { slice.flatten("tp"); }),
                    ContainsSubstring("the name 'tp' is that of another dimension"));
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] {
                      mesh.slice({"dp_cp", "dp"});
                    }),
                    ContainsSubstring("dimension 'dp' has ranks in common with another of (dp_cp, dp)"));
  });
}

TEST_CASE("DeviceMesh: a slice has its own dimensions and those of flatten()") {
  run_ranks(8, [](const GroupHandle& group) {
    const DeviceMesh mesh = init_device_mesh(group, {2, 2, 2}, {"dp", "cp", "tp"});
    const DeviceMesh slice = mesh.slice({"tp"});
    const DeviceMesh flat = mesh.slice({"dp", "cp"}).flatten();
    const auto unknown = ContainsSubstring("this slice of the device mesh has no dimension 'dp'; it has 'tp', 'dp_cp'");
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { slice["dp"]; }), unknown);
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { slice.size("dp"); }), unknown);
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { slice.coordinate("dp"); }), unknown);
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { slice.slice({"tp", "dp"}); }), unknown);
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { flat["cp"]; }), ContainsSubstring("it has 'dp_cp'"));
    RANK_CHECK(slice["dp_cp"].size() == 4);
    RANK_CHECK(slice.coordinate("dp_cp") == group.rank() / 2);
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { slice.slice({"dp_cp"}); }),
                    ContainsSubstring("dimension 'dp_cp' is not a combination of the dimensions of this slice: 'tp'"));
    RANK_CHECK(mesh.slice({"dp", "cp"}).slice({"dp_cp"}).ranks() == flat.ranks());
    RANK_CHECK(slice.slice({"tp"})["tp"].size() == 2);
  });
}

TEST_CASE("DeviceMesh: a dimension of all ranks shares the group's connections") {
  run_ranks(2, [](const GroupHandle& group) {
    const DeviceMesh mesh = init_device_mesh(group, {1, 2}, {"one", "all"});
    RANK_CHECK(&mesh["all"].state() == &group.state());
    RANK_CHECK(mesh["one"].size() == 1);
    RANK_CHECK(sum_over(mesh["one"], 5) == 5);
    RANK_CHECK(sum_over(mesh["all"], 5) == 10);
  });
}

TEST_CASE("DeviceMesh: ranks beyond the sizes are not in the mesh") {
  run_ranks(3, [](const GroupHandle& group) {
    const DeviceMesh mesh = init_device_mesh(group, {2, 1});
    RANK_CHECK(mesh.names() == std::vector<std::string>{"dim_0", "dim_1"});
    RANK_CHECK(mesh.has_this_rank() == (group.rank() < 2));
    if (group.rank() < 2) {
      RANK_CHECK(sum_over(mesh["dim_0"], 1) == 2);
    } else {
      RANK_CHECK_THAT(error_of<std::runtime_error>([&] { mesh["dim_0"]; }),
                      ContainsSubstring("rank 2 of 3 is not in the device mesh, which has 2 ranks"));
      RANK_CHECK_THAT(error_of<std::runtime_error>([&] { mesh.coordinate(); }), ContainsSubstring("is not in"));
    }
    RANK_CHECK(sum_over(group, 1) == 3);
  });
}

TEST_CASE("DeviceMesh: refuses what makes no sense, and the group stays usable") {
  run_ranks(2, [](const GroupHandle& group) {
    const auto refused = [&](const std::vector<int>& shape, const std::vector<std::string>& names = {}) {
      return error_of<std::invalid_argument>([&] { init_device_mesh(group, shape, names); });
    };
    RANK_CHECK_THAT(refused({}), ContainsSubstring("the mesh has no dimension"));
    RANK_CHECK_THAT(refused({2, 0}), ContainsSubstring("expected sizes above 0, got (2, 0)"));
    RANK_CHECK_THAT(refused({2, 2}), ContainsSubstring("shape (2, 2) needs more ranks than the group's 2"));
    RANK_CHECK_THAT(refused({65536, 65536, 65536, 65536}), ContainsSubstring("needs more ranks"));
    RANK_CHECK_THAT(refused({2}, {"a", "b"}), ContainsSubstring("expected a name for each of the 1 dimensions, got 2"));
    RANK_CHECK_THAT(refused({2, 1}, {"a", "a"}), ContainsSubstring("two dimensions have the name 'a'"));
    RANK_CHECK_THAT(refused({2}, {""}), ContainsSubstring("a dimension's name is empty"));
    const DeviceMesh mesh = init_device_mesh(group, {2, 1}, {"a", "b"});
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { mesh["c"]; }),
                    ContainsSubstring("the device mesh has no dimension 'c'; it has 'a', 'b'"));
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { mesh.slice({}); }), ContainsSubstring("is empty"));
    RANK_CHECK(sum_over(mesh["a"], 1) == 2);
  });
}

TEST_CASE("DeviceMesh: arguments that differ are an error on all ranks") {
  run_ranks(2, [](const GroupHandle& group) {
    RANK_CHECK_THAT(error_of<std::runtime_error>([&] {
                      init_device_mesh(group, group.rank() == 0 ? std::vector<int>{2, 1} : std::vector<int>{1, 2});
                    }),
                    ContainsSubstring("the arguments of init_device_mesh differ") &&
                        ContainsSubstring("rank 0 has shape (2, 1), rank 1 has shape (1, 2)"));
    const std::chrono::seconds other(group.rank() == 0 ? 60 : 50);
    RANK_CHECK_THAT(error_of<std::runtime_error>([&] { init_device_mesh(group, {2}, {"a"}, {.timeout = other}); }),
                    ContainsSubstring("rank 0 has timeout 60000 ms, rank 1 has timeout 50000 ms"));
  });
}

TEST_CASE("DeviceMesh: a group is connected by its first operation, whatever else ranks ask before") {
  run_ranks(4, [](const GroupHandle& group) {
    const DeviceMesh mesh = init_device_mesh(group, {2, 2}, {"a", "b"});
    if (group.rank() == 0) {
      // Nobody else does this.
      RANK_CHECK(mesh["a"].size() == 2);
      RANK_CHECK(!mesh["a"].backend().empty());
      RANK_CHECK(mesh["a"].is_open());
    }
    RANK_CHECK(sum_over(group, 1) == 4);
    // Ranks ask for the groups in different orders.
    const GroupHandle first = mesh[group.rank() < 2 ? "a" : "b"];
    const GroupHandle second = mesh[group.rank() < 2 ? "b" : "a"];
    RANK_CHECK(first.is_open());
    RANK_CHECK(second.is_open());
    RANK_CHECK(sum_over(mesh["b"], 1) == 2);
    RANK_CHECK(sum_over(mesh["a"], 1) == 2);
  });
}

class MeshThreads : protected test::EveryWire {};

TEST_CASE_METHOD(MeshThreads, "DeviceMesh: two threads use two dimensions at once") {
  run(4, [](const GroupHandle& group) {
    const DeviceMesh mesh = init_device_mesh(group, {2, 2}, {"a", "b"});
    std::atomic<int> wrong{0};
    const auto work = [&](const char* dimension) {
      const GroupHandle along = mesh[dimension];
      for (int i = 0; i < 20; ++i) wrong += sum_over(along, i) == 2 * i ? 0 : 1;
    };
    std::thread other([&] { work("a"); });
    work("b");
    other.join();
    RANK_CHECK(wrong == 0);
  });
}

// Sums, in each of the collectives, of numbers that depend on rank and round; how many were wrong.
int wrong_results(const GroupHandle& along, int round) {
  const int size = along.size();
  const auto full = [&](std::vector<int64_t> shape, int value) {
    return here(at::full(shape, static_cast<float>(value + round)));
  };
  const auto is = [](const at::Tensor& tensor, int value) { return tensor.cpu().eq(value).all().item<bool>() ? 0 : 1; };
  const int sum_of_ranks = size * (size - 1) / 2 + size * round;
  at::Tensor sum = full({3}, along.rank());
  all_reduce(sum, along);
  at::Tensor sent = full({2}, along.rank());
  broadcast(sent, size - 1, along);
  int wrong = is(sum, sum_of_ranks) + is(sent, size - 1 + round);
  const at::Tensor gathered = all_gather(full({2}, along.rank()), along);
  const at::Tensor exchanged = all_to_all(full({size, 2}, along.rank()), along);
  for (int rank = 0; rank < size; ++rank) wrong += is(gathered[rank], rank + round) + is(exchanged[rank], rank + round);
  wrong += is(reduce_scatter(full({2 * size}, along.rank()), along), sum_of_ranks);
  const at::Tensor on_root = gather(full({1}, along.rank()), 0, along);
  if (along.rank() == 0) wrong += is(on_root[size - 1], size - 1 + round);
  at::Tensor part = full({1}, 100);
  std::vector<at::Tensor> parts;
  for (int rank = 0; along.rank() == 0 && rank < size; ++rank) parts.push_back(full({1}, rank));
  scatter(part, parts, 0, along);
  barrier(along);
  return wrong + is(part, along.rank() + round);
}

TEST_CASE("DeviceMesh: two threads call all collectives on three dimensions at once") {
  for (const auto wire : test::wires({test::Wire::kGloo, test::Wire::kShm})) {
    run_ranks(8,
              [](const GroupHandle& group) {
                const DeviceMesh mesh = init_device_mesh(group, {2, 2, 2}, {"a", "b", "c"});
                std::atomic<int> wrong{0};
                std::thread other([&] {
                  for (int round = 0; round < 5; ++round) wrong += wrong_results(mesh["b"], round);
                });
                for (int round = 0; round < 5; ++round) {
                  wrong += wrong_results(mesh["a"], round) + wrong_results(mesh["c"], round);
                }
                other.join();
                RANK_CHECK(wrong == 0);
              },
              {.wire = wire});
  }
}

TEST_CASE("DeviceMesh: copies share the groups, and close() closes them for all") {
  run_ranks(2, [](const GroupHandle& group) {
    std::optional<DeviceMesh> mesh = init_device_mesh(group, {2, 1}, {"a", "b"});
    DeviceMesh wide = init_device_mesh(group, {1, 2}, {"a", "b"});
    const DeviceMesh copy = *mesh;
    const GroupHandle handle = copy["b"];
    mesh.reset();
    RANK_CHECK(sum_over(copy["b"], 3) == 3);
    RANK_CHECK(handle.is_open());
    DeviceMesh closing = copy;
    closing.close();
    RANK_CHECK(!handle.is_open());
    RANK_CHECK_THAT(error_of<std::runtime_error>([&] { sum_over(handle, 1); }), ContainsSubstring("was closed"));
    const GroupHandle never_used = wide["a"];
    wide.close();
    RANK_CHECK_THAT(error_of<std::runtime_error>([&] { sum_over(never_used, 1); }), ContainsSubstring("was closed"));
    RANK_CHECK(sum_over(group, 1) == 2);
  });
}

TEST_CASE("DeviceMesh: a member that never connects is named, and the other groups continue") {
  run_ranks(4,
            [](const GroupHandle& group) {
              const DeviceMesh mesh = init_device_mesh(group, {2, 2}, {"a", "b"}, {.timeout = std::chrono::seconds(2)});
              // Ranks 0 and 1 are a group along "b", so are 2 and 3; rank 3 does not come.
              if (group.rank() < 2) {
                RANK_CHECK(sum_over(mesh["b"], 1) == 2);
              } else if (group.rank() == 2) {
                RANK_CHECK_THAT(error_of<std::runtime_error>([&] { sum_over(mesh["b"], 1); }),
                                ContainsSubstring("device mesh: could not connect ranks (2, 3) of dimension 'b'") &&
                                    ContainsSubstring("never arrived: rank 1"));
                RANK_CHECK_THAT(error_of<std::runtime_error>([&] { sum_over(mesh["b"], 1); }),
                                ContainsSubstring("could not connect"));
              }
              if (group.rank() < 2) RANK_CHECK(sum_over(mesh["b"], 2) == 4);
              barrier(group);
            },
            {.timeout = std::chrono::seconds(60)});
}

TEST_CASE("DeviceMesh: a member that arrives when another has given up does not wait for it") {
  for (const auto wire : test::wires({test::Wire::kGloo, test::Wire::kShm})) {
    run_ranks(2,
              [](const GroupHandle& group) {
                const DeviceMesh mesh = init_device_mesh(group, {2}, {"all"}, {.timeout = std::chrono::seconds(2)});
                if (group.rank() == 1) barrier(group);
                RANK_CHECK_THAT(
                    error_of<std::runtime_error>([&] { sum_over(mesh["all"], 1); }),
                    ContainsSubstring("never arrived: rank 1") &&
                        (group.rank() == 0 ? ContainsSubstring("have not connected within 2000 ms")
                                           : ContainsSubstring("rank 0 (rank 0 of 2) has given up connecting")));
                if (group.rank() == 0) barrier(group);
                RANK_CHECK(sum_over(group, 1) == 2);
              },
              {.wire = wire, .timeout = std::chrono::seconds(60)});
  }
}

TEST_CASE("DeviceMesh: closing it ends a connection under way, here and on the rank that waits") {
  run_ranks(4, [](const GroupHandle& group) {
    DeviceMesh mesh = init_device_mesh(group, {2, 2}, {"a", "b"});
    const GroupHandle along = mesh["b"];
    if (group.rank() == 0) {
      std::thread closing([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        mesh.close();
      });
      const std::string error = error_of<std::runtime_error>([&] { sum_over(along, 1); });
      closing.join();
      RANK_CHECK_THAT(error, ContainsSubstring("the group was closed while it was being connected"));
    } else if (group.rank() == 3) {
      mesh.close();
    } else if (group.rank() == 2) {
      RANK_CHECK_THAT(error_of<std::runtime_error>([&] { sum_over(along, 1); }),
                      ContainsSubstring("rank 1 (rank 3 of 4) has closed this group"));
    }
    barrier(group);
  });
}

TEST_CASE("new_subgroups: consecutive ranks") {
  run_ranks(4, [](const GroupHandle& group) {
    const ProcessGroup half = new_subgroups(group, 2);
    RANK_CHECK(half.rank() == group.rank() % 2);
    RANK_CHECK(sum_over(half, group.rank()) == (group.rank() < 2 ? 1 : 5));
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { new_subgroups(group, 3); }),
                    ContainsSubstring("divides the group's size 4, got 3"));
    const auto listed = new_subgroups_by_enumeration(group, {{3, 0}, {1}});
    RANK_CHECK(listed.has_value() == (group.rank() != 2));
    if (listed) RANK_CHECK(sum_over(*listed, group.rank()) == (group.rank() == 1 ? 1 : 3));
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] {
                      new_subgroups_by_enumeration(group, {{0, 1}, {1}});
                    }),
                    ContainsSubstring("new_subgroups_by_enumeration: rank 1 is listed twice"));
  });
}

TEST_CASE("new_subgroups: ranks that disagree on the number of groups agree on the next ones") {
  run_ranks(4,
            [](const GroupHandle& group) {
              RANK_CHECK_THAT(error_of<std::runtime_error>([&] { new_subgroups(group, group.rank() == 0 ? 2 : 1); }),
                              ContainsSubstring("the groups of new_subgroups (number 1) differ"));
              const ProcessGroup half = new_subgroups(group, 2);
              RANK_CHECK(sum_over(half, group.rank()) == (group.rank() < 2 ? 1 : 5));
            },
            {.timeout = std::chrono::seconds(10)});
}

std::ptrdiff_t number_of_threads() {
  const std::filesystem::directory_iterator threads("/proc/self/task");
  return std::distance(begin(threads), end(threads));
}

TEST_CASE("DeviceMesh: dimensions that nobody uses have no threads, with a timeout of their own either") {
  run_ranks(
      4,
      [](const GroupHandle& group) {
        barrier(group);
        const std::ptrdiff_t before = number_of_threads();
        std::vector<DeviceMesh> meshes;
        for (int i = 0; i < 10; ++i) {
          meshes.push_back(init_device_mesh(group, {2, 2}, {"a", "b"}));
          meshes.push_back(init_device_mesh(group, {4}, {"all"}, {.timeout = std::chrono::seconds(50)}));
        }
        barrier(group);
        RANK_CHECK(number_of_threads() < before + 10);  // of 30 dimensions; other tests' threads may end meanwhile
        barrier(group);
        RANK_CHECK(sum_over(meshes[1]["all"], 1) == 4);
        barrier(group);
      },
      {.wire = test::Wire::kGloo});
}

TEST_CASE("DeviceMesh: a dimension of all ranks uses gloo if the mesh does") {
  run_ranks(2,
            [](const GroupHandle& group) {
              const DeviceMesh mesh = init_device_mesh(group, {1, 2}, {"one", "all"}, {.backend = "gloo"});
              RANK_CHECK(sum_over(mesh["all"], 1) == 2);
              RANK_CHECK(mesh["all"].backend() == "gloo");
            },
            {.wire = test::Wire::kShm});
}

TEST_CASE("DeviceMesh: a dimension of all ranks has the mesh's timeout") {
  run_ranks(2,
            [](const GroupHandle& group) {
              const DeviceMesh patient = init_device_mesh(group, {2}, {"all"}, {.timeout = std::chrono::seconds(60)});
              const DeviceMesh mesh = init_device_mesh(group, {2}, {"all"}, {.timeout = std::chrono::seconds(3)});
              RANK_CHECK(sum_over(patient["all"], 1) == 2);
              RANK_CHECK(sum_over(mesh["all"], 1) == 2);
              if (group.rank() == 0) {
                RANK_CHECK_THAT(error_of<std::runtime_error>([&] { sum_over(mesh["all"], 1); }),
                                ContainsSubstring("rank 1"));
              }
              barrier(group);
            },
            {.wire = test::Wire::kShm, .timeout = std::chrono::seconds(60)});
}

}  // namespace
}  // namespace ddp
