#include "base/joined.h"

#include <map>
#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace ddp::detail {
namespace {

TEST_CASE("joined: the items with what stands between them") {
  CHECK(joined(std::vector<std::string>{}) == "");
  CHECK(joined(std::vector{1}) == "1");
  CHECK(joined(std::vector{1, 2, 3}) == "1, 2, 3");
  CHECK(joined(std::vector<std::string>{"", "b", ""}, ",") == ",b,");
  CHECK(joined(std::vector{1, 2, 3}, ", ", {}, " and ") == "1, 2 and 3");
  CHECK(joined(std::vector{1}, ", ", {}, " and ") == "1");
  const std::map<int, std::string> pairs = {{1, "a"}, {2, "b"}};
  CHECK(joined(pairs, " ", [](const auto& pair) { return pair.second; }) == "a b");
}

TEST_CASE("joined_some: the rest of many items as a number") {
  CHECK(joined_some(std::vector<int>{}, 2) == "");
  CHECK(joined_some(std::vector{1, 2}, 2) == "1, 2");
  CHECK(joined_some(std::vector{1, 2, 3, 4}, 2) == "1, 2 and 2 more");
}

TEST_CASE("append_item: nothing stands before the first item") {
  std::string list;
  append_item(list, "a");
  append_item(list, "b", "; ");
  CHECK(list == "a; b");
}

}  // namespace
}  // namespace ddp::detail
