// One rank, or three as threads, with a CUDA part that is none (tests/support/cuda_plugin.cpp); cuda_part_test.py reads
// what it prints.
#include <ATen/Context.h>
#include <ATen/ops/ones.h>

#include <cstdio>
#include <string>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/device_mesh.h>
#include <ddprun/comm/spawn.h>

#include "comm/backends/backend_types.h"
#include "comm/group/group_state.h"
#include "tests/comm/counting_backend.h"
#include "tests/support/fake_cuda.h"

namespace {

void make_groups(const ddp::GroupHandle& group) {
  const auto options = ddp::new_group(group, {0, 2}, {.backend = "cpu:gloo,cuda:nccl"});
  if (!options) return;
  const auto backend = options->handle().state().group("test")->getBackend(c10::kCPU);
  std::string ranks;
  for (const auto rank : backend->getBackendOptions()->global_ranks_in_group)
    ranks.append(" ").append(std::to_string(rank));
  std::printf("gloo %s, members:%s\n", backend->getBackendOptions()->group_name.c_str(), ranks.c_str());
  ddp::new_group(*options, {1});
}

// Groups of three ranks whose communicators are parts of the job's.
void split_groups(const ddp::GroupHandle& group) {
  const auto pair = ddp::new_group(group, {0, 2}, {.split = true});
  const auto some = ddp::new_subgroups_by_enumeration(group, {{0}, {1, 2}}, {.split = true});
  const auto mesh = ddp::init_device_mesh(group, {1, 2}, {"one", "two"}, {.split = true});
  ddp::new_group(group, {0, 1});
}

// The ranks' device, and who serves which one.
void print_devices(const std::string& backend) {
  ddp::spawn(1,
             [](const ddp::GroupHandle& group) {
               std::printf("%s: %s", group.backend().c_str(), group.device().str().c_str());
               const auto c10d = group.state().group("test");
               for (const auto device : {c10::kCPU, c10::kCUDA}) {
                 if (ddp::detail::backend_for(group, device) == nullptr) continue;
                 std::printf(", %s by %s", c10::Device(device).str().c_str(),
                             c10d->getBackend(device)->getBackendName().c_str());
               }
               std::puts("");
             },
             {.backend = backend});
}

template <typename Call>
void attempt(const char* name, Call call) {
  try {
    call();
    std::printf("%s: done\n", name);
  } catch (const std::exception& error) {
    std::printf("%s: %s\n", name, error.what());
  }
}

// In a job of one, whose plugin says that the stream is being captured.
void capture() {
  attempt("init_process_group", [] { ddp::init_process_group({.backend = "local"}); });
  ddp::spawn(1,
             [](const ddp::GroupHandle& group) {
               const at::Tensor tensor = at::ones({2, 3}, at::TensorOptions(group.device()));
               attempt("all_reduce", [&] { ddp::all_reduce(tensor, group); });
               attempt("all_gather", [&] { ddp::all_gather(tensor, group); });
               attempt("barrier", [&] { ddp::barrier(group); });
               attempt("broadcast_string", [&] { ddp::broadcast_string("text", 0, group); });
               attempt("all_gather_uneven", [&] { ddp::all_gather_uneven(tensor, group); });
               attempt("new_group", [&] { ddp::new_group(group, {0}); });
             },
             {.backend = "local", .devices = {c10::Device(c10::kCUDA, 0)}});
}

void run(const std::string& mode) {
  if (mode == "nothing") return;
  if (mode == "gloo") {
    const auto group = ddp::init_process_group({.backend = "gloo"});
    std::printf("device %s\n", group.device().str().c_str());
    return;
  }
  if (mode == "asks") std::printf("LibTorch sees CUDA: %d\n", at::globalContext().hasCUDA() ? 1 : 0);
  ddp::test::use_fake_cuda();
  if (mode == "groups") {
    ddp::spawn(3, make_groups, {.backend = "cpu:gloo,cuda:nccl"});
  } else if (mode == "split") {
    ddp::spawn(3, split_groups, {.backend = "cpu:gloo,cuda:nccl"});
  } else if (mode == "devices") {
    ddp::detail::register_backend(ddp::test::counting_backend("counting", std::make_shared<std::atomic<int>>(0)));
    for (const char* backend : {"gloo", "cpu:gloo", "cpu:gloo,cuda:gloo", "cuda:gloo", "local", "nccl",
                                "cpu:gloo,cuda:nccl", "counting", "cpu:counting,cuda:nccl"}) {
      print_devices(backend);
    }
  } else if (mode == "capture") {
    capture();
  } else {
    const auto group = ddp::init_process_group();
    std::printf("device %s\n", group.device().str().c_str());
  }
}

}  // namespace

int main(int /*argc*/, char** argv) {
  std::puts("main");
  try {
    run(argv[1]);
  } catch (const std::exception& error) {
    std::printf("error: %s\n", error.what());
  }
}
