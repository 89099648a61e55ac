#include "launcher/nodes/elastic/etcd_api.h"

#include <nlohmann/json.hpp>

#include <set>
#include <string>

#include "tests/support/catch.h"

namespace launcher::elastic {
namespace {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;
using Condition = EtcdCondition::Kind;
using Operation = EtcdOperation::Kind;

// "Zm9v" is foo, "YmFy" is bar.
TEST_CASE("base64: comes back as it was, and nothing else is base64") {
  std::string bytes;
  for (int i = 0; i < 300; ++i) {
    CHECK(from_base64(to_base64(bytes)) == bytes);
    bytes += static_cast<char>(i * 7);
  }
  CHECK(to_base64("foo") == "Zm9v");
  CHECK(to_base64("fo") == "Zm8=");
  CHECK(to_base64("f") == "Zg==");
  for (const char* text : {"Z", "Zg", "Zg=", "Zg= ", "=Zg=", "Z===", "====", "Zm9-", "Zm9v\n"}) {
    INFO(text);
    CHECK_FALSE(from_base64(text));
  }
}

// All that these requests may contain: paths, fields and constants of etcd's interface description (rpc.swagger.json)
// that servers 3.4 and 3.5 accept. Numbers of 64 bits are texts in JSON's protocol buffers.
const std::set<std::string> kKnownFields = {
    "compare",         "success",      "failure", "key",           "result",      "target",
    "create_revision", "mod_revision", "lease",   "request_range", "request_put", "request_delete_range",
    "value",           "ID",           "TTL"};
const std::set<std::string> kKnownPaths = {"/v3/kv/txn", "/v3/lease/grant", "/v3/lease/keepalive",
                                           "/v3/lease/timetolive"};

void check_fields(const json& value) {
  if (value.is_object()) {
    for (const auto& [name, content] : value.items()) {
      INFO(name);
      CHECK(kKnownFields.contains(name));
      if (name == "target") CHECK(std::set<std::string>{"CREATE", "MOD", "LEASE"}.contains(content));
      if (name == "result") CHECK(std::set<std::string>{"EQUAL", "GREATER"}.contains(content));
      check_fields(content);
    }
  } else if (value.is_array()) {
    for (const json& item : value) check_fields(item);
  } else {
    CHECK(value.is_string());
  }
}

const EtcdTransaction kEverything = {.conditions = {{Condition::kAbsent, "foo"},
                                                    {Condition::kPresent, "foo"},
                                                    {Condition::kLease, "foo", 7},
                                                    {Condition::kRevision, "foo", 8}},
                                     .then = {{Operation::kWrite, "foo", "bar", 9}, {Operation::kRead, "foo"}},
                                     .otherwise = {{Operation::kDelete, "foo"}}};

TEST_CASE("etcd: requests have only what etcd's interface description has") {
  for (const HttpRequest& request :
       {transaction_request(kEverything), grant_request(15s), keep_alive_request(7), time_to_live_request(7)}) {
    CHECK(request.method == "POST");
    CHECK(kKnownPaths.contains(request.path));
    check_fields(json::parse(request.body));
  }
}

TEST_CASE("etcd: a transaction says its conditions and what follows") {
  CHECK(json::parse(transaction_request(kEverything).body) == json::parse(R"({
    "compare": [{"key":"Zm9v","result":"EQUAL","target":"CREATE","create_revision":"0"},
                {"key":"Zm9v","result":"GREATER","target":"CREATE","create_revision":"0"},
                {"key":"Zm9v","result":"EQUAL","target":"LEASE","lease":"7"},
                {"key":"Zm9v","result":"EQUAL","target":"MOD","mod_revision":"8"}],
    "success": [{"request_put":{"key":"Zm9v","value":"YmFy","lease":"9"}},{"request_range":{"key":"Zm9v"}}],
    "failure": [{"request_delete_range":{"key":"Zm9v"}}]})"));
}

TEST_CASE("etcd: the outcome of a transaction") {
  const auto outcome = parse_outcome({200, R"({"header":{"revision":"2"},"succeeded":true,"responses":[
      {"response_put":{"header":{"revision":"2"}}},
      {"response_range":{"header":{"revision":"2"},"count":"1","kvs":[{"key":"Zm9v","create_revision":"2",
       "mod_revision":"5","version":"1","value":"YmFy","lease":"2324035681705873927"}]}}]})"});
  REQUIRE(outcome);
  CHECK(outcome->succeeded);
  REQUIRE(outcome->found.contains("foo"));
  CHECK(outcome->found.at("foo").value == "bar");
  CHECK(outcome->found.at("foo").revision == 5);
  CHECK(outcome->found.at("foo").lease == 2324035681705873927);
  // Protocol buffers leave out what is false, 0 or empty.
  const auto failed = parse_outcome({200, R"({"header":{},"responses":[{"response_range":{"header":{}}}]})"});
  REQUIRE(failed);
  CHECK_FALSE(failed->succeeded);
  CHECK(failed->found.empty());
  const auto no_lease = parse_outcome({404, R"({"error":"etcdserver: requested lease not found","code":5})"});
  REQUIRE(no_lease);
  CHECK(no_lease->is_lease_missing);
}

TEST_CASE("etcd: what is no outcome") {
  for (const char* body :
       {"", "404 page not found", "[]", "{}", R"({"header":{},"succeeded":"yes"})", R"({"header":{},"responses":{}})",
        R"({"header":{},"responses":[{"response_range":{"kvs":3}}]})",
        R"({"header":{},"responses":[{"response_range":{"kvs":[{"key":"!","mod_revision":"1"}]}}]})",
        R"({"header":{},"responses":[{"response_range":{"kvs":[{"key":"Zm9v","mod_revision":"x"}]}}]})",
        R"({"header":{},"responses":[{"response_range":{"kvs":[{"key":"Zm9v"}]}}]})"}) {
    INFO(body);
    CHECK_FALSE(parse_outcome({200, body}));
  }
  CHECK_FALSE(parse_outcome({500, R"({"header":{}})"}));
}

TEST_CASE("etcd: leases, as the four requests tell them") {
  const auto granted = parse_lease({200, R"({"header":{},"ID":"2324035681705873925","TTL":"15"})"});
  REQUIRE(granted);
  CHECK(granted->id == 2324035681705873925);
  CHECK(granted->left == 15s);
  CHECK(parse_lease({200, R"({"result":{"header":{},"ID":"77","TTL":"15"}})"})->left == 15s);
  CHECK(parse_lease({200, R"({"result":{"header":{},"ID":"77"}})"})->left == 0s);
  CHECK(parse_lease({200, R"({"header":{},"ID":"77","TTL":"-1"})"})->left == 0s);
  CHECK(parse_lease({200, R"({"header":{},"ID":77,"TTL":14,"grantedTTL":15})"})->left == 14s);
  CHECK(parse_lease({404, R"({"error":"etcdserver: requested lease not found","code":5})"})->left == 0s);
  for (const char* body :
       {"", "[]", "{}", R"({"ID":"7"})", R"({"header":{},"TTL":"5"})", R"({"header":{},"ID":"x"})"}) {
    INFO(body);
    CHECK_FALSE(parse_lease({200, body}));
  }
}

TEST_CASE("etcd: what is wrong with a reply, and what to do") {
  const auto says = [](int status, const char* body) { return reply_problem({status, body}).text; };
  CHECK_THAT(says(401, ""), ContainsSubstring("requires a user and a password"));
  CHECK_THAT(says(403, "<html>"), ContainsSubstring("requires a user and a password"));
  CHECK_THAT(says(400, R"({"error":"etcdserver: user name is empty","code":3})"), ContainsSubstring("auth disable"));
  CHECK_THAT(says(403, R"({"message":"etcdserver: permission denied","code":7})"), ContainsSubstring("auth disable"));
  CHECK(reply_problem({401, ""}).is_lasting);
  CHECK_THAT(says(400, "Client sent an HTTP request to an HTTPS server.\n"), ContainsSubstring("only https"));
  CHECK(says(503, R"({"error":"etcdserver: request timed out","code":14})") ==
        "it answered: etcdserver: request timed out");
  CHECK_FALSE(reply_problem({503, R"({"error":"etcdserver: request timed out","code":14})"}).is_lasting);
  CHECK(says(200, "<!DOCTYPE html>\r\n<html>") ==
        "the program that answers there is not etcd 3.4 or newer: status 200, '<!DOCTYPE html>'");
  CHECK(says(502, "") == "the program that answers there is not etcd 3.4 or newer: status 502");
}

TEST_CASE("etcd: a server without the gateway is named by its version") {
  const HttpReply missing{404, "404 page not found\n"};
  CHECK(lacks_gateway(missing));
  CHECK_FALSE(lacks_gateway({404, R"({"error":"etcdserver: requested lease not found","code":5})"}));
  CHECK(parse_version({200, R"({"etcdserver":"3.3.27","etcdcluster":"3.3.0"})"}) == "3.3.27");
  CHECK(parse_version({200, R"({"etcdserver":7})"}) == "");
  CHECK(parse_version({404, R"({"etcdserver":"3.3.27"})"}) == "");
  CHECK_THAT(gateway_problem(missing, "3.3.27").text, ContainsSubstring("it is etcd 3.3.27: ddprun needs etcd 3.4"));
  CHECK_THAT(gateway_problem(missing, "2.3.8").text, ContainsSubstring("needs etcd 3.4"));
  CHECK_THAT(gateway_problem(missing, "3.4.0").text, ContainsSubstring("--enable-grpc-gateway=true"));
  CHECK_THAT(gateway_problem(missing, "3.10.1").text, ContainsSubstring("--enable-grpc-gateway=true"));
  CHECK_THAT(gateway_problem(missing, "10.0").text, ContainsSubstring("--enable-grpc-gateway=true"));
  CHECK_FALSE(gateway_problem(missing, "").is_lasting);
}

}  // namespace
}  // namespace launcher::elastic
