#include "comm/reducer/group_transports.h"

#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "comm/group/planned_all_reduce.h"
#include "comm/reducer/logged_collective.h"

namespace ddp::detail {
namespace {

class GroupTransport final : public BucketTransport {
 public:
  GroupTransport(GroupHandle group, at::Tensor bucket, std::shared_ptr<FailureNote> note)
      : group_(std::move(group)), bucket_(std::move(bucket)), note_(std::move(note)) {}

  TensorFuture start() override {
    // Takes its number now, since a check may have refused the bucket before.
    const LoggedCollective& collective = collective_.emplace(group_, bucket_text(bucket_), note_);
    const GroupState& state = group_.state();
    const AllReducePlan plan = plan_all_reduce(state, bucket_, {.waiter = AllReduceWaiter::kBackward});
    std::vector<at::Tensor> tensors{bucket_};
    WorkPtr work = collective.start(
        [&] { return start_all_reduce(plan, state, *state.group("DistributedDataParallel"), tensors); });
    if (plan == AllReducePlan::kInWait) {
      awaited_ = std::move(work);
      return nullptr;
    }
    auto future = work->getFuture();
    if (!future->devices().empty()) collective.end();  // it is seen on the device only
    return future;
  }

  c10::IValue finish(c10::ivalue::Future* arrived) override {
    if (arrived != nullptr) return collective_->finish(*arrived);
    try {
      awaited_->wait();
    } catch (const std::exception& error) {
      collective_->fail(error);
    }
    collective_->end();
    return c10::IValue(awaited_->result());
  }

 private:
  const GroupHandle group_;
  const at::Tensor bucket_;
  const std::shared_ptr<FailureNote> note_;
  std::optional<LoggedCollective> collective_;
  WorkPtr awaited_;  // null where a future tells
};

}  // namespace

std::shared_ptr<BucketTransport> group_transport(const GroupHandle& group, const at::Tensor& bucket,
                                                 std::shared_ptr<FailureNote> note) {
  return std::make_shared<GroupTransport>(group, bucket, std::move(note));
}

}  // namespace ddp::detail
