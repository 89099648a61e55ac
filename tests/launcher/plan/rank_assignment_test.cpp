#include "launcher/plan/rank_assignment.h"

#include "launcher/nodes/torchrun/static_messages.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

TEST_CASE("AssignRanks: ranks are consecutive in the order of the nodes") {
  const auto ranks = assign_ranks({{"default", 0, 2}, {"default", 1, 3}, {"default", 2, 1}});
  REQUIRE(ranks.size() == 3U);
  CHECK(to_json(ranks[0]) == "[0,6,0,6]");
  CHECK(to_json(ranks[1]) == "[2,6,2,6]");
  CHECK(to_json(ranks[2]) == "[5,6,5,6]");
}

TEST_CASE("AssignRanks: roles are counted apart") {
  const auto ranks = assign_ranks({{"trainer", 0, 2}, {"reader", 1, 1}, {"trainer", 2, 2}});
  CHECK(to_json(ranks[0]) == "[0,5,0,4]");
  CHECK(to_json(ranks[1]) == "[2,5,0,1]");
  CHECK(to_json(ranks[2]) == "[3,5,2,4]");
}

TEST_CASE("RendezvousJson: is what torchrun writes") {
  const auto info = parse_role_info(R"({"role": "default", "rank": 1, "local_world_size": 2})");
  REQUIRE(info);
  CHECK(info->role == "default");
  CHECK(info->node == 1);
  CHECK(info->local_world_size == 2);
  const auto ranks = parse_node_ranks("[2, 3, 2, 3]");
  REQUIRE(ranks);
  CHECK(ranks->first_rank == 2);
  CHECK(ranks->world_size == 3);
  const auto back = parse_role_info(to_json(RoleInfo{"a\"b\xff", 3, 4}));
  REQUIRE(back);
  CHECK(back->node == 3);
}

TEST_CASE("RendezvousJson: other text is refused") {
  for (const char* text :
       {"", "x", "[]", "{}", R"({"role": 1, "rank": 1, "local_world_size": 2})",
        R"({"role": "r", "rank": -1, "local_world_size": 2})", R"({"role": "r", "rank": 0, "local_world_size": 0})",
        R"({"role": "r", "rank": 1e99, "local_world_size": 2})"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_role_info(text));
  }
  for (const char* text : {"", "[1,2,3]", "[1,2,3,4,5]", "[0,0,0,1]", "[-1,1,1,1]", "[1.5,2,3,4]", "[\"0\",1,0,1]",
                           "{}", "[3,3,0,3]", "[0,3,3,3]"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_node_ranks(text));
  }
}

TEST_CASE("FailureNoticeJson: survives the way") {
  const auto notice = parse_failure_notice(to_json(
      FailureNotice{.node = 2, .exit_status = 139, .text = "rank 5 \"crashed\"", .details = {"  when:   then"}}));
  REQUIRE(notice);
  CHECK(notice->node == 2);
  CHECK(notice->exit_status == 139);
  CHECK(notice->text == "rank 5 \"crashed\"");
  CHECK(notice->details == std::vector<std::string>{"  when:   then"});
  const auto hostile = parse_failure_notice(
      R"({"node": 1, "exit_status": 3, "text": "a\u001b[2Jb\nc", "details": ["\u001b]0;x\u0007", 5]})");
  REQUIRE(hostile);
  CHECK(hostile->text.find_first_of("\x1b\n") == std::string::npos);
  REQUIRE(hostile->details.size() == 1U);
  CHECK(hostile->details[0].find_first_of("\x1b\x07") == std::string::npos);
  CHECK_FALSE(parse_failure_notice("{\"node\": 1}"));
  CHECK_FALSE(parse_failure_notice(R"({"node": 1, "exit_status": 300, "text": ""})"));
}

}  // namespace
}  // namespace launcher
