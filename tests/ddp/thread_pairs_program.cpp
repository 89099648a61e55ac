// Two threads of a rank, each with a group of its own, do at once what needs the job's store, in all pairs:
//
//     thread_pairs_program ROUNDS BACKEND [INIT_METHOD]
//
// Started by thread_pairs_test.py. Prints on rank 0: "28 pairs, 5 rounds each". With ROUNDS 0 a collective fails on
// rank 0 while its other thread waits in a comparison; prints what the error says.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/process_group.h>
#include <ddprun/comm/report.h>
#include <ddprun/ddp/comm_hooks.h>
#include <ddprun/ddp/distributed_data_parallel.h>
#include <ddprun/syncbn/sync_batch_norm.h>

#include "comm/group/verify_across_ranks.h"

namespace {

using ddp::GroupHandle;

// A hang ends with this, and not with the 30 minutes of the default.
constexpr auto kForHangs = std::chrono::minutes(2);

struct Action {
  const char* name;
  std::function<void(const GroupHandle&)> run;
};

void expect(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error("wrong result: " + what);
}

// Each rank's input is another one, so that the gradient shows whose inputs it is made of.
void take_step(ddp::DistributedDataParallel<torch::nn::Linear>& model, const GroupHandle& group) {
  const at::Tensor input = at::full({4, 6}, 1.0 + group.rank());
  model(input).sum().backward();
  const double mean = 4 * (1.0 + group.size()) / 2;
  expect(model->module()->weight.grad().eq(mean).all().item<bool>(), "the mean of the gradients");
}

const std::vector<Action>& actions() {
  static const std::vector<Action> all{
      {"wrapping",
       [](const GroupHandle& group) {
         const ddp::DistributedDataParallel<torch::nn::Linear> model(torch::nn::Linear(6, 3), group);
       }},
      {"first step",
       [](const GroupHandle& group) {
         ddp::DistributedDataParallel<torch::nn::Linear> model(torch::nn::Linear(6, 3), group);
         take_step(model, group);
       }},
      {"first step with a hook",
       [](const GroupHandle& group) {
         ddp::DistributedDataParallel<torch::nn::Linear> model(torch::nn::Linear(6, 3), group);
         model->register_comm_hook(ddp::hooks::bf16_compress(group));
         take_step(model, group);
       }},
      {"new_group",
       [](const GroupHandle& group) {
         const auto made = ddp::new_group(group, {0, 1});
         expect(ddp::all_gather_strings(std::to_string(made->rank()), *made) == std::vector<std::string>{"0", "1"},
                "all_gather_strings in a new group");
       }},
      {"SyncBatchNorm",
       [](const GroupHandle& group) {
         ddp::SyncBatchNorm norm(ddp::SyncBatchNormOptions(3, group));
         norm(at::full({2, 3}, 1.0 + group.rank()));
         // A tenth of the mean over both ranks' inputs.
         expect(at::allclose(norm->running_mean, at::full({3}, 0.15)), "the running mean");
       }},
      {"comparison",
       [](const GroupHandle& group) {
         ddp::verify_equal_across_ranks("lines", {"one", "two"}, group);
       }},
      {"collectives",
       [](const GroupHandle& group) {
         expect(ddp::broadcast_string("text", 1, group) == "text", "broadcast_string");
         ddp::barrier(group);
       }},
  };
  return all;
}

// Both threads do it so often. Which of them comes first differs between the ranks and from round to round.
void run_pair(const Action& first, const Action& second, const std::vector<GroupHandle>& groups, int rounds) {
  constexpr auto kDelay = std::chrono::microseconds(400);
  std::barrier together(2);
  const auto run = [&](int thread, const Action& action) {
    const GroupHandle& group = groups[static_cast<size_t>(thread)];
    try {
      for (int round = 0; round < rounds; ++round) {
        together.arrive_and_wait();
        if ((round + thread + group.rank()) % 3 == 0) std::this_thread::sleep_for(kDelay);
        action.run(group);
      }
    } catch (const std::exception& error) {
      static_cast<void>(ddp::report(std::runtime_error(std::string(first.name) + " beside " + second.name + ": " +
                                                       action.name + ": " + error.what())));
      std::_Exit(1);  // the other thread may wait for this one
    }
  };
  std::thread other(run, 1, std::cref(second));
  run(0, first);
  other.join();
}

// Rank 1 comes to the comparison when rank 0 knows why the collective has failed.
void fail_beside_a_wait(const GroupHandle& all, const std::vector<GroupHandle>& groups) {
  const auto compare = [&] { ddp::verify_equal_across_ranks("lines", {"one"}, groups[0]); };
  if (all.rank() == 0) {
    std::thread waiting(compare);
    try {
      ddp::all_reduce(at::ones({2}), groups[1], ddp::ReduceOp::kSum, {.timeout = std::chrono::seconds(2)});
    } catch (const std::runtime_error& error) {
      std::printf("%s\n", error.what());
    }
    ddp::barrier(all);
    waiting.join();
  } else {
    ddp::barrier(all);
    compare();
  }
}

}  // namespace

int main(int count, char** words) try {
  if (count < 3) throw std::invalid_argument("usage: thread_pairs_program ROUNDS BACKEND [INIT_METHOD]");
  const int rounds = std::atoi(words[1]);
  const auto group =
      ddp::init_process_group({.backend = words[2], .timeout = kForHangs, .init_method = count > 3 ? words[3] : ""});
  std::vector<ddp::ProcessGroup> owners;
  for (int thread = 0; thread < 2; ++thread) owners.push_back(*ddp::new_group(group, {0, 1}));
  const std::vector<GroupHandle> groups(owners.begin(), owners.end());
  if (rounds == 0) return fail_beside_a_wait(group, groups), 0;
  int pairs = 0;
  for (size_t first = 0; first < actions().size(); ++first) {
    for (size_t second = first; second < actions().size(); ++second, ++pairs) {
      run_pair(actions()[first], actions()[second], groups, rounds);
    }
  }
  ddp::print_on_main(group, pairs, " pairs, ", rounds, " rounds each");
  return 0;
} catch (const std::exception& error) {
  return ddp::report(error);
}
