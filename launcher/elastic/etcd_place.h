// A key of etcd that lives for as long as the launcher that coordinates renews it: when that one is gone, another
// launcher gets it, and goes on with the job (--rdzv_backend etcd-v2).
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "launcher/elastic/etcd_keys.h"
#include "launcher/elastic/http_client.h"
#include "launcher/elastic/meeting_place.h"
#include "launcher/network/connector.h"
#include "launcher/rendezvous/rendezvous_settings.h"
#include "launcher/system/event_loop.h"

namespace launcher::elastic {

class EtcdPlace : public MeetingPlace {
 public:
  // References must outlive the place.
  EtcdPlace(EventLoop& loop, const RendezvousSettings& settings, Callbacks callbacks);
  ~EtcdPlace() override;

  void search(bool anew, bool has_taken_part) override;
  void announce(std::uint16_t control_port) override;
  void record(const History& history, Change change) override;
  bool is_settled() const override { return !is_ending_ || etcd_.is_idle(); }
  bool is_lasting() const override { return true; }
  std::string host() const override { return seat_.host; }
  std::string name() const override;
  std::string problem() const override;

 private:
  using Clock = EventLoop::Clock;

  void look();
  void on_seat(const std::optional<HttpReply>& reply);
  void connect(const Seat& seat);
  void check_for_end();
  void take_seat();
  void read_history();
  void become_coordinator(const History& history);
  void renew();
  void on_renewed(const std::optional<HttpReply>& reply, Clock::time_point asked);
  void lose_seat(const std::string& reason);
  void call_in(Clock::duration time, void (EtcdPlace::*action)());
  HttpRequest write_seat(const Seat& seat) const;

  EventLoop& loop_;
  const RendezvousSettings& settings_;
  Callbacks callbacks_;
  HttpClient etcd_;
  std::unique_ptr<Connector> connector_;
  Seat seat_;                                  // that was found, or is ours
  bool is_own_ = false;                        // ours
  bool is_ending_ = false;                     // the job is over, or goes on elsewhere
  std::optional<std::uint64_t> silent_since_;  // a seat that was not written since then may be empty
  bool is_anew_ = false;
  bool has_taken_part_ = false;
  Clock::time_point renewed_{};
  std::string problem_;
  std::optional<EventLoop::TimerId> timer_;
};

}  // namespace launcher::elastic
