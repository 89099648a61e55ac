// Memory that one stream allocates and another one uses, on CUDA devices that keep books (tests/support/fake_cuda.h).
#include "comm/group/stream_use.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <functional>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/fake_cuda.h"

namespace ddp::detail {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::IsEmpty;

const c10::Device kFirst(c10::kCUDA, 0);
const c10::Device kSecond(c10::kCUDA, 1);

at::Tensor ones(c10::Device device) {
  return at::ones({3}, at::TensorOptions(device));
}

// `later` waits for what is queued on `earlier`.
void follow(c10::Stream later, c10::Stream earlier) {
  c10::Event reached(c10::kCUDA);
  reached.record(earlier);
  reached.block(later);
}

class StreamUse {
 protected:
  StreamUse() {
    test::wait_for_fake_cuda();
    test::stream_faults();
  }

  // Makes a tensor on the own stream, lets another one that has waited use it, and lets it go. What the books say.
  std::vector<std::string> after(const std::function<void(const at::Tensor& tensor, c10::Stream user)>& told) {
    at::Tensor tensor = ones(kFirst);
    const c10::Stream user = test::new_stream(0);
    follow(user, own_);
    {
      const c10::StreamGuard on(user);
      tensor.add(1);
      told(tensor, user);
    }
    tensor.reset();
    return test::stream_faults();
  }

  const bool is_faked_ = (test::use_fake_cuda(), true);  // before the first stream
  const c10::Stream own_ = test::new_stream(0);
  const c10::StreamGuard guard_{own_};
};

TEST_CASE_METHOD(StreamUse, "StreamUse: the current stream is the calling thread's, of the device that is asked for") {
  CHECK(current_stream(kFirst) == own_);
  CHECK(current_stream(kSecond) == c10::impl::VirtualGuardImpl(c10::kCUDA).getStream(kSecond));
  CHECK(current_stream(kSecond) != own_);
  CHECK(current_stream(c10::kCPU) == std::nullopt);
  const c10::Stream other = test::new_stream(1);
  {
    const c10::StreamGuard on(other);
    CHECK(current_stream(kSecond) == other);
  }
  CHECK(current_stream(kFirst) == own_);
  std::optional<c10::Stream> of_thread;
  std::thread([&] { of_thread = current_stream(kFirst); }).join();
  CHECK(of_thread == c10::Stream(c10::Stream::UNSAFE, kFirst, 0));
}

TEST_CASE_METHOD(StreamUse,
                 "StreamUse: memory that goes while another stream uses it is a fault, unless that was told") {
  CHECK(after([](const at::Tensor&, c10::Stream) {}).size() == 1);
  CHECK_THAT(after([](const at::Tensor& tensor, c10::Stream user) { record_stream(tensor, user); }), IsEmpty());
  CHECK_THAT(after([](const at::Tensor& tensor, c10::Stream) { record_current_stream(tensor); }), IsEmpty());
  CHECK_THAT(
      after([](const at::Tensor& tensor, c10::Stream) { record_current_stream(std::vector<at::Tensor>{tensor}); }),
      IsEmpty());
  UNSCOPED_INFO("views are of the same memory");
  CHECK_THAT(after([](const at::Tensor& tensor, c10::Stream) { record_current_stream(tensor.narrow(0, 1, 1)); }),
             IsEmpty());
  UNSCOPED_INFO("of another stream, or of another tensor, does not help");
  CHECK(after([](const at::Tensor& tensor, c10::Stream) { record_stream(tensor, test::new_stream(0)); }).size() == 1);
  CHECK(after([](const at::Tensor&, c10::Stream) { record_current_stream(ones(kFirst)); }).size() == 1);
}

TEST_CASE_METHOD(StreamUse, "StreamUse: of a list each tensor is told to the stream of its own device") {
  at::Tensor first = ones(kFirst);
  at::Tensor second = ones(kSecond);
  const c10::Stream users[] = {test::new_stream(0), test::new_stream(1)};
  follow(users[0], own_);
  follow(users[1], *current_stream(kSecond));
  {
    const c10::StreamGuard on_first(users[0]);
    const c10::StreamGuard on_second(users[1]);
    first.add(1);
    second.add(1);
    record_current_stream({first, at::Tensor(), at::ones({2}), second});
  }
  first.reset();
  second.reset();
  CHECK_THAT(test::stream_faults(), IsEmpty());
}

TEST_CASE_METHOD(StreamUse, "StreamUse: tensors of the CPU and undefined ones are left out") {
  CHECK_NOTHROW(record_current_stream(at::Tensor()));
  CHECK_NOTHROW(record_current_stream(std::vector<at::Tensor>{}));
  CHECK_NOTHROW(record_current_stream({at::Tensor(), at::ones({2}), at::zeros({0}), at::ones({2, 2}).to_sparse()}));
  CHECK_NOTHROW(StreamOrigin({}).wait_in_current_stream());
  CHECK_NOTHROW(StreamOrigin({at::Tensor(), ones(kFirst)}).wait_in_current_stream());
  CHECK_NOTHROW(StreamOrigin({at::ones({2})}).wait_in_current_stream());
  CHECK_THAT(test::stream_faults(), IsEmpty());
}

// Temporary memory of an operation: made on one stream, used up on the one on which its end is waited for.
class Origin : public StreamUse {
 protected:
  std::vector<std::string> faults_of(bool follows, bool by_other_stream) {
    std::optional<at::Tensor> temporary = ones(kFirst);
    const StreamOrigin origin({*temporary});
    const c10::Stream waiter = by_other_stream ? test::new_stream(0) : own_;
    if (by_other_stream) follow(waiter, own_);
    {
      const c10::StreamGuard on(waiter);
      temporary->add(1);
      if (follows) origin.wait_in_current_stream();
    }
    temporary.reset();
    return test::stream_faults();
  }
};

TEST_CASE_METHOD(Origin, "StreamOrigin: its stream waits for the one that used the memory, which then may go") {
  CHECK(faults_of(/*follows=*/false, /*by_other_stream=*/true).size() == 1);
  CHECK_THAT(faults_of(/*follows=*/true, /*by_other_stream=*/true), IsEmpty());
  CHECK_THAT(faults_of(/*follows=*/true, /*by_other_stream=*/false), IsEmpty());
  CHECK_THAT(faults_of(/*follows=*/false, /*by_other_stream=*/false), IsEmpty());
}

TEST_CASE_METHOD(Origin, "StreamOrigin: is the stream of the time it was made, of the first tensor's device") {
  const c10::Stream on_second = test::new_stream(1);
  const at::Tensor first = ones(kFirst);
  std::optional<StreamOrigin> origin;
  at::Tensor temporary;
  {
    const c10::StreamGuard on(on_second);
    temporary = ones(kSecond);
    origin.emplace(std::vector<at::Tensor>{temporary, first});
  }
  const c10::Stream waiter = test::new_stream(1);
  follow(waiter, on_second);
  {
    const c10::StreamGuard on(waiter);
    temporary.add(1);
    origin->wait_in_current_stream();
  }
  temporary.reset();
  CHECK_THAT(test::stream_faults(), IsEmpty());
}

TEST_CASE_METHOD(Origin, "StreamOrigin: only what is queued by then is waited for") {
  at::Tensor temporary = ones(kFirst);
  const StreamOrigin origin({temporary});
  const c10::Stream waiter = test::new_stream(0);
  follow(waiter, own_);
  {
    const c10::StreamGuard on(waiter);
    origin.wait_in_current_stream();
    temporary.add(1);  // too late
  }
  temporary.reset();
  CHECK_THAT(test::stream_faults(),
             Catch::Matchers::SizeIs(1) && Catch::Matchers::Contains(ContainsSubstring("freed")));
}

}  // namespace
}  // namespace ddp::detail
