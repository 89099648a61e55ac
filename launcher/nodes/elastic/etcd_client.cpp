#include "launcher/nodes/elastic/etcd_client.h"

#include <utility>

namespace launcher::elastic {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kAnswer = 2s;

}  // namespace

EtcdClient::EtcdClient(EventLoop& loop, const std::string& host, std::uint16_t port)
    : http_(loop, host, port, kAnswer) {}

void EtcdClient::carry_out(const EtcdTransaction& transaction, OnOutcome on_outcome) {
  http_.ask(transaction_request(transaction), [this, done = std::move(on_outcome)](const auto& reply) {
    const auto outcome = reply ? parse_outcome(*reply) : std::nullopt;
    understand(reply, outcome.has_value(), [outcome, done] { done(outcome); });
  });
}

void EtcdClient::ask_lease(HttpRequest request, OnLease on_lease) {
  http_.ask(std::move(request), [this, done = std::move(on_lease)](const auto& reply) {
    const auto lease = reply ? parse_lease(*reply) : std::nullopt;
    understand(reply, lease.has_value(), [lease, done] { done(lease); });
  });
}

void EtcdClient::understand(const std::optional<HttpReply>& reply, bool is_good, std::function<void()> then) {
  if (!reply || is_good) {
    problem_ = {};
    then();
  } else if (lacks_gateway(*reply)) {
    // Whether it is another etcd decides what is to be done.
    http_.ask(version_request(), [this, first = *reply, then = std::move(then)](const auto& answer) {
      problem_ = gateway_problem(first, answer ? parse_version(*answer) : "");
      then();
    });
  } else {
    problem_ = reply_problem(*reply);
    then();
  }
}

}  // namespace launcher::elastic
