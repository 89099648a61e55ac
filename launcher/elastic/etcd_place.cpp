#include "launcher/elastic/etcd_place.h"

#include <utility>

#include "launcher/network/tcp_socket.h"
#include "launcher/system/random_id.h"

namespace launcher::elastic {
namespace {

using namespace std::chrono_literals;

// A seat that is not renewed for so long is free; its launcher gives it up a second before.
constexpr auto kLease = 5s;
constexpr auto kRenewal = 1s;
constexpr std::chrono::milliseconds kAnswer = 2s;
// How often a launcher that looks for the coordinator asks.
constexpr auto kLookAgain = 200ms;
constexpr auto kReachable = 1s;
// A job that nobody coordinates any more is forgotten after so long.
constexpr auto kMemory = 24h;

constexpr const char* kSeat = "coordinator";
constexpr const char* kHistory = "history";

std::string in_seconds(std::chrono::seconds time) {
  return std::to_string(time.count());
}

ListenAt listen_at(const std::string& host) {
  const auto addresses = numeric_addresses(host, 0);
  if (addresses.empty() || !is_own_address(addresses.front())) return {ListenAt::Kind::kEverywhere};
  return {ListenAt::Kind::kAddresses, addresses};
}

}  // namespace

EtcdPlace::EtcdPlace(EventLoop& loop, const RendezvousSettings& settings, Callbacks callbacks)
    : loop_(loop),
      settings_(settings),
      callbacks_(std::move(callbacks)),
      etcd_(loop, settings.master_addr, static_cast<std::uint16_t>(settings.master_port), kAnswer) {}

EtcdPlace::~EtcdPlace() {
  if (timer_) loop_.cancel(*timer_);
}

std::string EtcdPlace::name() const {
  return "etcd at " + settings_.master_addr + " port " + std::to_string(settings_.master_port);
}

std::string EtcdPlace::problem() const {
  return etcd_.problem().empty() ? problem_ : "etcd: " + etcd_.problem();
}

void EtcdPlace::call_in(Clock::duration time, void (EtcdPlace::*action)()) {
  if (timer_) loop_.cancel(*timer_);
  timer_ = loop_.call_at(Clock::now() + time, [this, action] {
    timer_.reset();
    (this->*action)();
  });
}

void EtcdPlace::search(bool anew, bool has_taken_part) {
  is_own_ = false;
  is_anew_ = anew;
  has_taken_part_ = has_taken_part;
  silent_since_.reset();
  connector_.reset();
  etcd_.drop_waiting();
  call_in(0ms, &EtcdPlace::look);
}

void EtcdPlace::look() {
  connector_.reset();
  etcd_.ask({.path = key_path(settings_.run_id, kSeat) + "?quorum=true"},
            [this](const std::optional<HttpReply>& reply) { on_seat(reply); });
}

void EtcdPlace::on_seat(const std::optional<HttpReply>& reply) {
  const auto value = reply ? parse_etcd_value(*reply) : std::nullopt;
  const auto seat = value ? parse_seat(value->value) : std::nullopt;
  if (reply && reply->status == 404 && reply->body.find("errorCode") == std::string::npos) {
    problem_ = "it does not serve etcd's API v2: start it with --enable-v2=true";
  } else if (reply && reply->status == 404) {
    has_taken_part_ ? check_for_end() : take_seat();
    return;
  } else if (seat) {
    // The launcher that was lost may still have the seat: one that is there renews it.
    if (is_anew_ && !silent_since_) silent_since_ = value->index;
    const bool is_there = seat->port != 0 && silent_since_ != value->index;
    problem_ = "host " + seat->host + " coordinates, and does not answer";
    if (is_there) {
      connect(*seat);
      return;
    }
  } else if (reply) {
    problem_ = "etcd answers with status " + std::to_string(reply->status);
  }
  call_in(kLookAgain, &EtcdPlace::look);
}

void EtcdPlace::connect(const Seat& seat) {
  seat_ = seat;
  connector_ = std::make_unique<Connector>(loop_, seat.host, seat.port, [this](UniqueFd fd) {
    if (timer_) loop_.cancel(*timer_);
    timer_.reset();
    callbacks_.on_found(std::move(fd));
  });
  call_in(kReachable, &EtcdPlace::look);
}

HttpRequest EtcdPlace::write_seat(const Seat& seat) const {
  return {.method = "PUT",
          .path = key_path(settings_.run_id, kSeat),
          .form = {{"value", to_json(seat)}, {"ttl", in_seconds(kLease)}}};
}

// A job that has ended leaves nothing behind, and one that goes on without a coordinator does.
void EtcdPlace::check_for_end() {
  etcd_.ask({.path = key_path(settings_.run_id, kHistory) + "?quorum=true"},
            [this](const std::optional<HttpReply>& reply) {
              if (reply && reply->status == 404) {
                callbacks_.on_impossible({"the job has ended without this node", 1});
              } else if (reply && parse_etcd_value(*reply)) {
                take_seat();
              } else {
                call_in(kLookAgain, &EtcdPlace::look);
              }
            });
}

void EtcdPlace::take_seat() {
  seat_ = {random_id(), settings_.local_addr.empty() ? etcd_.own_address() : settings_.local_addr, 0};
  HttpRequest request = write_seat(seat_);
  request.form.emplace_back("prevExist", "false");
  renewed_ = Clock::now();
  etcd_.ask(std::move(request), [this](const std::optional<HttpReply>& reply) {
    if (reply && reply->status == 201) {
      read_history();
    } else {
      call_in(kLookAgain, &EtcdPlace::look);
    }
  });
}

void EtcdPlace::read_history() {
  etcd_.ask({.path = key_path(settings_.run_id, kHistory) + "?quorum=true"},
            [this](const std::optional<HttpReply>& reply) {
              const auto value = reply ? parse_etcd_value(*reply) : std::nullopt;
              if (!value && (!reply || reply->status != 404)) {
                call_in(kLookAgain, &EtcdPlace::look);  // the seat will be free again
                return;
              }
              const Clocks now{Clock::now(), std::chrono::system_clock::now()};
              const auto stored = value ? parse_history(value->value, now) : std::nullopt;
              become_coordinator(stored ? handed_on(*stored, now.steady) : History{});
            });
}

void EtcdPlace::become_coordinator(const History& history) {
  is_own_ = true;
  is_ending_ = false;
  callbacks_.on_host(listen_at(seat_.host), history);
}

void EtcdPlace::announce(std::uint16_t control_port) {
  const Seat before = seat_;
  seat_.port = control_port;
  HttpRequest request = write_seat(seat_);
  request.form.emplace_back("prevValue", to_json(before));
  const auto asked = Clock::now();
  etcd_.ask(std::move(request), [this, asked](const auto& reply) { on_renewed(reply, asked); });
}

void EtcdPlace::renew() {
  if (!is_own_ || is_ending_) return;
  // A launcher that was frozen must not ask first.
  if (Clock::now() - renewed_ > kLease - kRenewal) {
    lose_seat(etcd_.problem().empty() ? "this launcher was held up" : etcd_.problem());
    return;
  }
  if (!etcd_.is_idle()) {
    call_in(kRenewal / 4, &EtcdPlace::renew);
    return;
  }
  HttpRequest request = write_seat(seat_);
  request.form.emplace_back("prevValue", to_json(seat_));
  const auto asked = Clock::now();
  etcd_.ask(std::move(request), [this, asked](const auto& reply) { on_renewed(reply, asked); });
}

void EtcdPlace::on_renewed(const std::optional<HttpReply>& reply, Clock::time_point asked) {
  if (!is_own_ || is_ending_) return;
  if (reply && (reply->status == 404 || reply->status == 412)) {
    lose_seat("another node has taken its place");
    return;
  }
  if (reply && reply->status / 100 == 2) renewed_ = asked;
  call_in(kRenewal, &EtcdPlace::renew);
}

void EtcdPlace::lose_seat(const std::string& reason) {
  is_own_ = false;
  callbacks_.on_deposed("this node coordinates the job no longer: " + reason);
}

void EtcdPlace::record(const History& history, Change change) {
  if (!is_own_ || is_ending_) return;
  const Clocks now{Clock::now(), std::chrono::system_clock::now()};
  const auto done = [](const std::optional<HttpReply>&) {};
  const std::string own = to_json(seat_);
  if (change == Change::kEnd) {
    etcd_.ask({.method = "DELETE", .path = key_path(settings_.run_id, kHistory)}, done);
  } else {
    // Who hands the seat over is not lost.
    const std::string host = change == Change::kHandOver ? "" : settings_.host;
    etcd_.ask({.method = "PUT",
               .path = key_path(settings_.run_id, kHistory),
               .form = {{"value", to_json(history, host, now)},
                        {"ttl", in_seconds(std::chrono::duration_cast<std::chrono::seconds>(kMemory))}}},
              done);
  }
  if (change == Change::kRound) return;
  is_ending_ = true;
  etcd_.ask({.method = "DELETE", .path = key_path(settings_.run_id, kSeat) + "?prevValue=" + url_escaped(own)}, done);
}

}  // namespace launcher::elastic
