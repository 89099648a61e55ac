#include "launcher/plan/rank_assignment.h"

#include <gtest/gtest.h>

#include "launcher/rendezvous/static_messages.h"

namespace launcher {
namespace {

TEST(AssignRanks, ConsecutiveInTheOrderOfTheNodes) {
  const auto ranks = assign_ranks({{"default", 0, 2}, {"default", 1, 3}, {"default", 2, 1}});
  ASSERT_EQ(ranks.size(), 3U);
  EXPECT_EQ(to_json(ranks[0]), "[0,6,0,6]");
  EXPECT_EQ(to_json(ranks[1]), "[2,6,2,6]");
  EXPECT_EQ(to_json(ranks[2]), "[5,6,5,6]");
}

TEST(AssignRanks, RolesAreCountedApart) {
  const auto ranks = assign_ranks({{"trainer", 0, 2}, {"reader", 1, 1}, {"trainer", 2, 2}});
  EXPECT_EQ(to_json(ranks[0]), "[0,5,0,4]");
  EXPECT_EQ(to_json(ranks[1]), "[2,5,0,1]");
  EXPECT_EQ(to_json(ranks[2]), "[3,5,2,4]");
}

TEST(RendezvousJson, IsWhatTorchrunWrites) {
  const auto info = parse_role_info(R"({"role": "default", "rank": 1, "local_world_size": 2})");
  ASSERT_TRUE(info);
  EXPECT_EQ(info->role, "default");
  EXPECT_EQ(info->node, 1);
  EXPECT_EQ(info->local_world_size, 2);
  const auto ranks = parse_node_ranks("[2, 3, 2, 3]");
  ASSERT_TRUE(ranks);
  EXPECT_EQ(ranks->first_rank, 2);
  EXPECT_EQ(ranks->world_size, 3);
  const auto back = parse_role_info(to_json(RoleInfo{"a\"b\xff", 3, 4}));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->node, 3);
}

TEST(RendezvousJson, OtherTextIsRefused) {
  for (const char* text :
       {"", "x", "[]", "{}", R"({"role": 1, "rank": 1, "local_world_size": 2})",
        R"({"role": "r", "rank": -1, "local_world_size": 2})", R"({"role": "r", "rank": 0, "local_world_size": 0})",
        R"({"role": "r", "rank": 1e99, "local_world_size": 2})"}) {
    EXPECT_FALSE(parse_role_info(text)) << text;
  }
  for (const char* text : {"", "[1,2,3]", "[1,2,3,4,5]", "[0,0,0,1]", "[-1,1,1,1]", "[1.5,2,3,4]", "[\"0\",1,0,1]",
                           "{}", "[3,3,0,3]", "[0,3,3,3]"}) {
    EXPECT_FALSE(parse_node_ranks(text)) << text;
  }
}

TEST(FailureNoticeJson, SurvivesTheWay) {
  const auto notice = parse_failure_notice(to_json(FailureNotice{2, 139, "rank 5 \"crashed\"\n"}));
  ASSERT_TRUE(notice);
  EXPECT_EQ(notice->node, 2);
  EXPECT_EQ(notice->exit_status, 139);
  EXPECT_EQ(notice->text, "rank 5 \"crashed\"\n");
  EXPECT_FALSE(parse_failure_notice("{\"node\": 1}"));
  EXPECT_FALSE(parse_failure_notice(R"({"node": 1, "exit_status": 300, "text": ""})"));
}

}  // namespace
}  // namespace launcher
