// Operations that threads start and the driver takes.

#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "comm/shm/collectives.h"
#include "comm/shm/operation_queue.h"
#include "tests/support/catch.h"

namespace ddp::shm {
namespace {

struct Taken {
  std::vector<JointPtr> joints;
  std::vector<MessagePtr> messages;
};

Taken take_all(OperationQueue& queue) {
  Taken taken;
  queue.take_all([&](JointPtr operation) { taken.joints.push_back(std::move(operation)); },
                 [&](MessagePtr message) { taken.messages.push_back(std::move(message)); });
  return taken;
}

TEST_CASE("OperationQueue: operations are taken in the order in which they were started, each once") {
  OperationQueue queue;
  CHECK_FALSE(queue.has_new());
  const std::vector<JointPtr> joints{barrier(), barrier()};
  std::byte byte{};
  const auto message = std::make_shared<Message>(Message::Direction::kSend, 1, 0, &byte, 1);
  queue.add(joints[0]);
  queue.add(message);
  queue.add(joints[1]);
  CHECK(queue.has_new());
  const Taken first = take_all(queue);
  CHECK(first.joints == joints);
  CHECK(first.messages == std::vector<MessagePtr>{message});
  CHECK_FALSE(queue.has_new());
  const Taken second = take_all(queue);
  CHECK((second.joints.empty() && second.messages.empty()));
}

TEST_CASE("OperationQueue: the first failure is thrown to all that start something") {
  OperationQueue queue;
  CHECK_NOTHROW(queue.check_usable());
  queue.fail(std::make_exception_ptr(std::runtime_error("first")));
  queue.fail(std::make_exception_ptr(std::runtime_error("second")));
  for (int i = 0; i < 2; ++i) CHECK_THROWS_WITH(queue.check_usable(), "first");
}

TEST_CASE("OperationQueue: stopping and aborting are separate") {
  OperationQueue queue;
  CHECK_FALSE(queue.is_stopping());
  queue.stop();
  CHECK(queue.is_stopping());
  CHECK_FALSE(queue.is_aborting());
  queue.abort();
  CHECK(queue.is_aborting());
}

}  // namespace
}  // namespace ddp::shm
