#include "launcher/remote/hub.h"

#include <algorithm>
#include <utility>

#include "launcher/os/system/launch_error.h"

namespace launcher::remote {

std::vector<std::vector<NamedHost>> branches(const std::vector<NamedHost>& hosts, std::size_t fanout) {
  std::vector<std::vector<NamedHost>> found;
  std::vector<NamedHost> distant;
  for (const NamedHost& host : hosts) {
    if (host.is_local) {
      found.push_back({host});
    } else {
      distant.push_back(host);
    }
  }
  const std::size_t count = std::min(std::max<std::size_t>(fanout, 1), distant.size());
  for (std::size_t i = 0; i < count; ++i) {
    const auto begin = distant.begin() + static_cast<std::ptrdiff_t>(i * distant.size() / count);
    const auto end = distant.begin() + static_cast<std::ptrdiff_t>((i + 1) * distant.size() / count);
    found.emplace_back(begin, end);
  }
  return found;
}

Hub::Hub(EventLoop& loop, SshSettings ssh, const sigset_t& mask, Callbacks callbacks)
    : loop_(loop), ssh_(std::move(ssh)), mask_(mask), callbacks_(std::move(callbacks)) {}

void Hub::connect(const std::vector<NamedHost>& hosts) {
  if (is_closed_) return;
  for (const std::vector<NamedHost>& branch : branches(hosts, ssh_.fanout)) start(branch);
}

void Hub::start(const std::vector<NamedHost>& branch) {
  Link::Callbacks callbacks{
      .on_frame = callbacks_.on_frame,
      .on_unreachable = [this, branch](const std::string& why) { on_unreachable(branch, why); },
      .on_lost =
          [this, branch](const std::string& why) {
            for (const NamedHost& host : branch) callbacks_.on_lost(host, why);
          },
      .on_line = [this, name = branch.front().name](
                     const std::string& line) { callbacks_.on_line("host " + name + ": " + line); }};
  try {
    links_.push_back(std::make_unique<Link>(loop_, ssh_, branch, mask_, std::move(callbacks)));
  } catch (const LaunchError& error) {
    for (const NamedHost& host : branch) callbacks_.on_unreachable(host, error.what());
    return;
  }
  for (const NamedHost& host : branch) ways_[host.number] = links_.back().get();
}

void Hub::on_unreachable(const std::vector<NamedHost>& branch, const std::string& why) {
  callbacks_.on_unreachable(branch.front(), why);
  connect({branch.begin() + 1, branch.end()});
}

void Hub::send(const Frame& frame) {
  const std::string bytes = to_bytes(frame);
  if (frame.host == kEveryHost) {
    for (const auto& link : links_) {
      if (link->is_open()) link->send_bytes(bytes);
    }
  } else if (const auto way = ways_.find(frame.host); way != ways_.end() && way->second->is_open()) {
    way->second->send_bytes(bytes);
  }
}

// By index: a link that is concluded may have others made.
void Hub::reap() {
  for (std::size_t i = 0; i < links_.size(); ++i) links_[i]->reap();
}

void Hub::close() {
  is_closed_ = true;
  for (const auto& link : links_) link->close();
}

void Hub::kill() {
  for (const auto& link : links_) link->kill();
}

bool Hub::is_gone() const {
  return std::all_of(links_.begin(), links_.end(), [](const auto& link) { return link->is_gone(); });
}

}  // namespace launcher::remote
