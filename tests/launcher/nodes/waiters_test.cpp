#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "launcher/nodes/store/key_value_store.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"

namespace launcher::store {
namespace {

using ddp::test::ElementsAre;
using Connections = std::vector<ConnectionId>;

TEST_CASE("Waiters: who waits for nothing need not wait") {
  Waiters waiters(std::make_shared<MemoryBudget>());
  CHECK_FALSE(waiters.wait(1, {}));
  CHECK(waiters.take_ready("a").empty());
  CHECK(waiters.take_first_ready("a").empty());
}

TEST_CASE("Waiters: are ready with the last key, whatever the order") {
  Waiters waiters(std::make_shared<MemoryBudget>());
  CHECK(waiters.wait(1, {"a", "b"}));
  CHECK(waiters.wait(2, {"b"}));
  CHECK(waiters.take_ready("c").empty());
  CHECK_THAT(waiters.take_ready("b"), ElementsAre(2));
  CHECK(waiters.take_ready("b").empty());
  CHECK_THAT(waiters.take_ready("a"), ElementsAre(1));
}

TEST_CASE("Waiters: come in the order in which they began to wait") {
  Waiters waiters(std::make_shared<MemoryBudget>());
  for (const ConnectionId id : {5U, 2U, 9U, 1U}) waiters.wait(id, {"a"});
  waiters.wait(5, {"a"});  // begins anew, behind the others
  CHECK_THAT(waiters.take_ready("a"), ElementsAre(2, 9, 1, 5));
}

TEST_CASE("Waiters: a key that is named twice comes once") {
  Waiters waiters(std::make_shared<MemoryBudget>());
  CHECK(waiters.wait(1, {"a", "a", "b", "a"}));
  CHECK(waiters.take_ready("a").empty());
  CHECK_THAT(waiters.take_ready("b"), ElementsAre(1));
}

TEST_CASE("Waiters: a new wait replaces the one before") {
  Waiters waiters(std::make_shared<MemoryBudget>());
  waiters.wait(1, {"a"});
  waiters.wait(1, {"b"});
  CHECK(waiters.take_ready("a").empty());
  CHECK_THAT(waiters.take_ready("b"), ElementsAre(1));
}

TEST_CASE("Waiters: who is forgotten is not ready any more") {
  Waiters waiters(std::make_shared<MemoryBudget>());
  waiters.wait(1, {"a", "b"});
  waiters.wait(2, {"a"});
  waiters.take_ready("b");
  waiters.forget(1);
  waiters.forget(1);
  waiters.forget(77);
  CHECK_THAT(waiters.take_ready("a"), ElementsAre(2));
}

TEST_CASE("Waiters: one element is for the first who misses nothing else") {
  Waiters waiters(std::make_shared<MemoryBudget>());
  waiters.wait(1, {"queue", "other"});
  waiters.wait(2, {"queue"});
  waiters.wait(3, {"queue"});
  CHECK_THAT(waiters.take_first_ready("queue"), ElementsAre(2));
  CHECK_THAT(waiters.take_first_ready("queue"), ElementsAre(3));
  CHECK(waiters.take_first_ready("queue").empty());  // now the first one knows of it
  CHECK_THAT(waiters.take_ready("other"), ElementsAre(1));
}

TEST_CASE("Waiters: waiting is charged, and given back however it ends") {
  const auto budget = std::make_shared<MemoryBudget>();
  {
    Waiters waiters(budget);
    waiters.wait(1, {"a", std::string(1'000, 'k')});
    CHECK(budget->used() > 2'000);
    const std::size_t of_one = budget->used();
    waiters.wait(1, {"a", std::string(1'000, 'k')});
    CHECK(budget->used() == of_one);
    waiters.forget(1);
    CHECK(budget->used() == 0);
    waiters.wait(1, {"a"});
    waiters.take_ready("a");
    CHECK(budget->used() == 0);
    waiters.wait(1, {"a"});
    waiters.take_first_ready("a");
    CHECK(budget->used() == 0);
    waiters.wait(1, {"left"});
  }
  CHECK(budget->used() == 0);
}

// The same as a list that is searched from its beginning.
class Model {
 public:
  bool wait(ConnectionId connection, const std::vector<std::string>& keys) {
    forget(connection);
    if (keys.empty()) return false;
    waiting_.push_back({connection, {keys.begin(), keys.end()}});
    return true;
  }
  void forget(ConnectionId connection) {
    std::erase_if(waiting_, [&](const One& one) { return one.connection == connection; });
  }
  Connections take_ready(const std::string& key) {
    Connections ready;
    for (One& one : waiting_) {
      if (one.missing.erase(key) != 0 && one.missing.empty()) ready.push_back(one.connection);
    }
    std::erase_if(waiting_, [](const One& one) { return one.missing.empty(); });
    return ready;
  }
  Connections take_first_ready(const std::string& key) {
    for (const One& one : waiting_) {
      if (one.missing != std::set{key}) continue;
      const ConnectionId connection = one.connection;
      forget(connection);
      return {connection};
    }
    return take_ready(key);
  }
  bool is_empty() const { return waiting_.empty(); }

 private:
  struct One {
    ConnectionId connection = 0;
    std::set<std::string> missing;
  };
  std::vector<One> waiting_;
};

TEST_CASE("Waiters: do what a plain list would do, whatever happens in whatever order") {
  for (unsigned seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto budget = std::make_shared<MemoryBudget>();
    Waiters waiters(budget);
    Model model;
    const auto some_key = [&] { return std::string(1, static_cast<char>('a' + random() % 5)); };
    for (int step = 0; step < 2'000; ++step) {
      const ConnectionId connection = random() % 8;
      switch (random() % 4) {
        case 0: {
          std::vector<std::string> keys(random() % 4);
          for (std::string& key : keys) key = some_key();
          REQUIRE(waiters.wait(connection, keys) == model.wait(connection, keys));
          break;
        }
        case 1:
          waiters.forget(connection);
          model.forget(connection);
          break;
        case 2: {
          const std::string key = some_key();
          REQUIRE(waiters.take_ready(key) == model.take_ready(key));
          break;
        }
        default: {
          const std::string key = some_key();
          REQUIRE(waiters.take_first_ready(key) == model.take_first_ready(key));
          break;
        }
      }
      REQUIRE((budget->used() == 0) == model.is_empty());
    }
  }
}

}  // namespace
}  // namespace launcher::store
