#include "comm/reducer/hook_agreement.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <utility>

#include "comm/group/argument_checks.h"
#include "comm/group/group_state.h"
#include "comm/group/verify_across_ranks.h"
#include "comm/versions/single_tensor_collectives.h"

namespace ddp::detail {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Ranks of a first step come within this; the last one of all never waits, and sends no bucket where they differ.
constexpr auto kAgreementTimeout = 1s;
constexpr auto kPollPause = 100us;
constexpr size_t kNameBytes = 128;

at::Tensor padded_bytes(const std::string& name) {
  const at::Tensor bytes = at::zeros({static_cast<int64_t>(kNameBytes)}, at::kByte);
  std::copy_n(name.begin(), std::min(name.size(), kNameBytes), bytes.mutable_data_ptr<uint8_t>());
  return bytes;
}

std::vector<std::string> to_names(const at::Tensor& bytes, int count) {
  const at::Tensor on_host = bytes.cpu();
  const auto* first = reinterpret_cast<const char*>(on_host.const_data_ptr<uint8_t>());
  std::vector<std::string> names;
  for (int rank = 0; rank < count; ++rank, first += kNameBytes) {
    names.emplace_back(first, std::find(first, first + kNameBytes, '\0'));
  }
  return names;
}

std::string truncated(const std::string& name) {
  return name.empty() ? "none" : "'" + name + "'";
}

}  // namespace

std::string hook_difference(const std::vector<std::string>& names) {
  const auto has_majority = [&](const std::string& name) {
    return 2 * std::ranges::count(names, name) > std::ssize(names);
  };
  const auto usual = std::ranges::find_if(names, has_majority);
  const std::string& expected = usual == names.end() ? names.front() : *usual;
  const auto other = std::ranges::find_if(names, [&](const std::string& name) { return name != expected; });
  if (other == names.end()) return "";
  const std::string of_other = "rank " + std::to_string(other - names.begin()) + " has " + truncated(*other);
  return usual == names.end() ? "rank 0 has " + truncated(expected) + ", " + of_other
                              : of_other + ", the others " + truncated(expected);
}

void HookAgreement::set(std::string name) {
  name_ = std::move(name);
  has_begun_ = false;
}

bool HookAgreement::begin(const GroupHandle& group, const std::shared_ptr<ReductionFailure>& note) {
  if (std::exchange(has_begun_, true) || group.size() == 1 || !group.state().store()) return false;
  if (!ranks_running_python(group).empty()) return false;
  const at::NoGradGuard no_grad;
  // A collective and not the store: a rank that ended in its first step is noticed at once. The names are in its own,
  // for the message of a rank that ends in the middle of a bucket.
  const c10::Device device = host_value_device(group);
  at::Tensor own = padded_bytes(name_).to(device);
  at::Tensor names = at::empty({static_cast<int64_t>(kNameBytes) * group.size()}, own.options());
  const LoggedCollective collective(group, "comparison of the communication hooks (" + truncated(name_) + " here)",
                                    note);
  const WorkPtr work = collective.start(
      [&] { return versions::all_gather_single(*group.state().group("DistributedDataParallel"), names, own, {}); });
  under_way_.emplace(Comparison{group, note, collective, names, work});
  for (const auto end = Clock::now() + kAgreementTimeout; !work->isCompleted() && Clock::now() < end;)
    std::this_thread::sleep_for(kPollPause);
  if (!work->isCompleted()) return true;
  finish_comparison();
  return false;
}

void HookAgreement::finish_comparison() {
  if (!under_way_) return;
  const Comparison comparison = *std::exchange(under_way_, std::nullopt);
  compare(comparison);
}

void HookAgreement::compare(const Comparison& comparison) const {
  try {
    comparison.work->wait();
  } catch (const std::exception& error) {
    comparison.collective.fail(error);
  }
  comparison.collective.end();
  const std::string difference = hook_difference(to_names(comparison.names, comparison.group.size()));
  if (difference.empty()) return;
  const std::string text = who(comparison.group.info()) + ": the ranks' communication hooks differ: " + difference +
                           ". Register the same hook on every rank, before the first backward";
  comparison.note->set(text);
  throw std::runtime_error(text);
}

}  // namespace ddp::detail
