#include "comm/backends/pair_exchange.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

namespace ddp::detail {

/// One sum whose messages are in flight.
struct PairExchange::Sum {
  // The receive is started first: gloo sends at once to a rank that has a pending receive.
  Sum(c10d::Backend& gloo, at::Tensor own) : tensor(std::move(own)), received(at::empty_like(tensor)) {
    const int other = 1 - gloo.getRank();
    std::vector<at::Tensor> tensors{received};
    recv = gloo.recv(tensors, other, kPairExchangeTag);
    tensors[0] = tensor;
    send = gloo.send(tensors, other, kPairExchangeTag);
  }

  at::Tensor tensor;
  at::Tensor received;
  c10::intrusive_ptr<c10d::Work> recv;
  c10::intrusive_ptr<c10d::Work> send;
};

/// The sums whose messages may be in flight. They stay here even if no thread waits for them, as after a failed
/// backward: gloo must be able to deliver their messages.
class PairExchange::Sums {
 public:
  void add(std::shared_ptr<Sum> sum) {
    const std::lock_guard lock(mutex_);
    sums_.push_back(std::move(sum));
  }
  // Messages are delivered in order, so all sums that were started before `sum` are complete too.
  void remove_up_to(const std::shared_ptr<Sum>& sum) {
    const std::lock_guard lock(mutex_);
    const auto place = std::ranges::find(sums_, sum);
    if (place != sums_.end()) sums_.erase(sums_.begin(), place + 1);
  }

 private:
  std::mutex mutex_;
  std::deque<std::shared_ptr<Sum>> sums_;
};

class PairExchange::SumWork final : public c10d::Work {
 public:
  SumWork(c10::intrusive_ptr<c10d::Backend> gloo, at::Tensor result, std::shared_ptr<Sum> sum,
          std::shared_ptr<Sums> sums)
      : gloo_(std::move(gloo)), result_(std::move(result)), sum_(std::move(sum)), sums_(std::move(sums)) {}

  bool wait(std::chrono::milliseconds /*timeout*/) override {
    if (!sum_) return true;
    const at::NoGradGuard no_grad;
    sum_->recv->wait();
    sum_->send->wait();
    // In rank order, so that a NaN's bits are the same on both ranks.
    const bool is_first = gloo_->getRank() == 0;
    at::add_out(sum_->tensor, is_first ? sum_->tensor : sum_->received, is_first ? sum_->received : sum_->tensor);
    sums_->remove_up_to(sum_);
    sum_.reset();  // its tensors would keep the bucket's memory alive
    return true;
  }
  bool isCompleted() override { return !sum_; }
  std::vector<at::Tensor> result() override { return {result_}; }

 private:
  const c10::intrusive_ptr<c10d::Backend> gloo_;  // kept alive for the messages
  const at::Tensor result_;                       // the caller's tensor itself, as c10d's results are
  std::shared_ptr<Sum> sum_;                      // null after the addition
  const std::shared_ptr<Sums> sums_;
};

std::shared_ptr<PairExchange::Sums> PairExchange::make_sums() {
  return std::make_shared<Sums>();
}

c10::intrusive_ptr<c10d::Work> PairExchange::start(c10d::Backend& gloo, const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  auto sum = std::make_shared<Sum>(gloo, tensor.detach());
  started_->add(sum);
  return c10::make_intrusive<SumWork>(c10::intrusive_ptr<c10d::Backend>::reclaim_copy(&gloo), tensor, std::move(sum),
                                      started_);
}

}  // namespace ddp::detail
