#include "comm/reducer/group_transports.h"

#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "comm/backends/shm_work.h"
#include "comm/group/direct_all_reduce.h"
#include "comm/group/group_state.h"
#include "comm/group/pair_exchange.h"
#include "comm/reducer/logged_collective.h"

namespace ddp::detail {
namespace {

class GroupTransport : public BucketTransport {
 public:
  GroupTransport(GroupHandle group, at::Tensor bucket, std::shared_ptr<FailureNote> note)
      : group_(std::move(group)), bucket_(std::move(bucket)), note_(std::move(note)) {}

 protected:
  const GroupHandle& group() const { return group_; }
  const at::Tensor& bucket() const { return bucket_; }
  // Takes its number: in start(), since a check may have refused the bucket before.
  const LoggedCollective& begin_collective() { return collective_.emplace(group_, bucket_text(bucket_), note_); }
  const LoggedCollective& collective() const { return *collective_; }

 private:
  const GroupHandle group_;
  const at::Tensor bucket_;
  const std::shared_ptr<FailureNote> note_;
  std::optional<LoggedCollective> collective_;
};

class AllReduceTransport final : public GroupTransport {
 public:
  using GroupTransport::GroupTransport;

  TensorFuture start() override {
    std::vector<at::Tensor> tensors{bucket()};
    const WorkPtr work = begin_collective().start(
        [&] { return direct_all_reduce(*group().state().group("DistributedDataParallel"), tensors); });
    if (ends_in_wait(*work)) {
      awaited_ = work;
      return nullptr;
    }
    auto future = work->getFuture();
    if (!future->devices().empty()) collective().end();  // it is seen on the device only
    return future;
  }

  c10::IValue finish(c10::ivalue::Future* arrived) override {
    if (arrived != nullptr) return collective().finish(*arrived);
    try {
      awaited_->wait();
    } catch (const std::exception& error) {
      collective().fail(error);
    }
    collective().end();
    return c10::IValue(awaited_->result());
  }

 private:
  WorkPtr awaited_;  // null where a future tells
};

class PairTransport final : public GroupTransport {
 public:
  PairTransport(const GroupHandle& group, const at::Tensor& bucket, std::shared_ptr<FailureNote> note,
                std::shared_ptr<PairExchange> exchange)
      : GroupTransport(group, bucket, std::move(note)), exchange_(std::move(exchange)) {}

  TensorFuture start() override {
    begin_collective();
    try {
      sum_ = exchange_->start(bucket());
    } catch (const std::exception& error) {
      collective().fail(error);
    }
    return nullptr;
  }

  c10::IValue finish(c10::ivalue::Future* /*arrived*/) override {
    try {
      exchange_->finish(sum_);
    } catch (const std::exception& error) {
      collective().fail(error);
    }
    collective().end();
    return c10::IValue(std::vector<at::Tensor>{bucket()});
  }

 private:
  const std::shared_ptr<PairExchange> exchange_;
  std::shared_ptr<PairExchange::Sum> sum_;
};

}  // namespace

std::shared_ptr<BucketTransport> group_transport(const GroupHandle& group, const at::Tensor& bucket,
                                                 std::shared_ptr<FailureNote> note) {
  if (auto exchange = group.state().pair_exchange(); exchange && PairExchange::takes(bucket)) {
    return std::make_shared<PairTransport>(group, bucket, std::move(note), std::move(exchange));
  }
  return std::make_shared<AllReduceTransport>(group, bucket, std::move(note));
}

}  // namespace ddp::detail
