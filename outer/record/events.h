/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EVENTS_H
#define EVENTS_H
/* Each event that a process may log (kernels/base/log.h): which process, what it means, what to do.
 * `atoll help NAME` prints a row; docs/events.md is made of the rows, of the levels and fields in
 * the code, and of the errors of kernels/base/err.h by tests/structure/events.py, which is a test:
 * an event of the code without a row here fails it. */
#include "kernels/base/arena.h"

/* X(name, process, meaning, what to do), sorted */
#define EVENT_LIST(X)                                                                              \
    X(abort, "aggregator",                                                                         \
      "A round was aborted: its outer state would not be finite, a seal is lost, or an operator "  \
      "asked. The state stays, and the work is in the residuals.",                                 \
      "Read why. If it repeats, look for the site whose loss or norm is wrong.")                   \
    X(accept, "aggregator",                                                                        \
      "A contribution is stored. With ok=0: this gRPC accepts connections in a way that cannot "   \
      "be limited.",                                                                               \
      "Nothing. With ok=0 limit connections in the firewall.")                                     \
    X(adopted, "aggregator",                                                                       \
      "A site reports that it has applied a round, with its step, loss and bytes.", "Nothing.")    \
    X(after_checkpoint, "site",                                                                    \
      "The command run.after_checkpoint ended, failed, or was not started.",                       \
      "With a warning: read its output, and run it by hand for that step.")                        \
    X(aggregator, "aggregator", "The aggregator starts: run, term, mode, sites.",                  \
      "Nothing. Of two aggregators the one with the highest term counts.")                         \
    X(amendment, "site, aggregator",                                                               \
      "A setting of the run is amended from a round on. With why: what a start would warn of.",    \
      "Nothing. `atoll operator set --list` shows all.")                                           \
    X(announcement_lost, "site", "The site could not tell an aggregator its identity key.",        \
      "It is sent again. If it repeats, see ev=refused at the aggregator.")                        \
    X(archive, "site, aggregator",                                                                 \
      "Where the archive is, and how large it becomes; or it could not be opened, or the disk is " \
      "too small.",                                                                                \
      "With a warning: make room, or name another directory in run.archive.")                      \
    X(archive_closed, "site, aggregator",                                                          \
      "The archive was closed: the disk has too little room for it.",                              \
      "Make room; the archive has a gap until the next start.")                                    \
    X(archive_gap, "site, aggregator", "These rounds are missing in the archive.",                 \
      "Copy them from another replica's archive, if `atoll replay` is to begin before.")           \
    X(atoll, "site, aggregator", "The process starts: version, commit, run.", "Nothing.")          \
    X(attention, "site", "Which attention kernels the GPU uses, and why.",                         \
      "With repeats=no: set device.attention = own where runs must repeat bit for bit.")           \
    X(bind, "aggregator", "A site binds to the aggregator, or is refused.",                        \
      "With a refusal: do what why says.")                                                         \
    X(bound, "site", "The site is bound to the aggregator of this term.", "Nothing.")              \
    X(call_ended, "aggregator", "A call of a peer was ended: it broke a limit of the protocol.",   \
      "Look at the peer's version, and at proxies between.")                                       \
    X(certificate_expired, "site, aggregator", "A certificate has expired.",                       \
      "`atoll cert issue`, then copy the files; the process reads them by itself.")                \
    X(certificate_expires, "site, aggregator", "A certificate expires soon.",                      \
      "`atoll cert issue`, then copy the files; the process reads them by itself.")                \
    X(certificate_reload, "aggregator",                                                            \
      "A new certificate could not be read; the one before stays in use.",                         \
      "Mend the file that is named.")                                                              \
    X(checkpoint, "site", "An inner checkpoint is stored.", "Nothing.")                            \
    X(checkpoint_damaged, "site",                                                                  \
      "A checkpoint or its pointer is damaged; an older one is taken.",                            \
      "Nothing at once. Look at the disk.")                                                        \
    X(checkpoint_older, "site",                                                                    \
      "The run continues from an older checkpoint: lost steps are trained again.", "Nothing.")     \
    X(checkpoint_prune, "site", "An old checkpoint could not be removed.",                         \
      "Remove it by hand; look at the disk and its modes.")                                        \
    X(clipped, "site, aggregator", "A contribution was scaled down (outer.clip).",                 \
      "Now and then: nothing. In most rounds: look at that site's data and rate.")                 \
    X(clock, "site", "This host's clock is not the aggregator's.", "Set both by NTP.")             \
    X(close, "aggregator", "A round was closed, or could not be.",                                 \
      "With a warning: do what why says.")                                                         \
    X(commit, "aggregator", "A round is committed: who is in it, bytes, state.", "Nothing.")       \
    X(committed, "aggregator", "A committed round was recorded.", "Nothing.")                      \
    X(complete, "site", "All rounds are recorded here.", "Nothing.")                               \
    X(compress, "site", "train.compress saves nothing with one rank, and costs accuracy.",         \
      "Set train.compress = none.")                                                                \
    X(connections_dropped, "aggregator", "Connections were closed because no call came on them.",  \
      "Nothing, if few. Else see who connects: port scans, a wrong proxy.")                        \
    X(current_found, "site, aggregator",                                                           \
      "The pointer to the newest outer state was lost and found again.", "Look at the disk.")      \
    X(current_lost, "site, aggregator", "The pointer to the newest outer state is lost.",          \
      "Look at the disk; a site takes a snapshot.")                                                \
    X(data, "site",                                                                                \
      "The data is not what it seems: a file listed twice, evaluation text in the training text, " \
      "no data.json, another order.",                                                              \
      "Read the text; correct data.train or data.eval.")                                           \
    X(directory_open, "site, aggregator", "Other users of this machine can read the directory.",   \
      "chmod 700.")                                                                                \
    X(disk_full, "aggregator", "The disk is full; the aggregator waits and tries again.",          \
      "Make room. Nothing acknowledged is lost.")                                                  \
    X(download_cut, "aggregator",                                                                  \
      "A site asked for bytes and did not take them; the download was cut.",                       \
      "Nothing: it asks for the rest. If it repeats, look at its link.")                           \
    X(eager_alone, "site",                                                                         \
      "An eager update has no mean of the round before, so the site's own delta is taken alone.",  \
      "Nothing.")                                                                                  \
    X(ends, "site", "The run ends before its last step.", "Read error and why.")                   \
    X(eval, "site", "Loss and perplexity of an evaluation.", "Nothing.")                           \
    X(exclude, "aggregator", "A site was put into quarantine, or the act was refused.",            \
      "`atoll operator readmit`, once its cause is mended.")                                       \
    X(extended, "site, aggregator",                                                                \
      "train.steps has grown; the schedule follows the new total from this step on.", "Nothing.")  \
    X(fetch, "site", "data.fetch brings a missing shard, or failed.",                              \
      "With a warning: read its output. The run waits and tries again.")                           \
    X(fetched, "site", "A shard was brought.", "Nothing.")                                         \
    X(final, "site, aggregator", "The run is over: digests of parameters and outer state.",        \
      "Compare them: they are equal at all replicas.")                                             \
    X(forwarded, "relay", "A connection through the relay has ended.", "Nothing.")                 \
    X(graphs, "site", "Times with and without CUDA graphs, and which way is kept.", "Nothing.")    \
    X(grpc, "site, aggregator", "A line of the gRPC library.",                                     \
      "Read it together with the lines around it.")                                                \
    X(halt, "aggregator", "The aggregator stops: its state cannot be trusted, or the disk fails.", \
      "Read error and why; [runbook](runbook.md).")                                                \
    X(handshake_failed, "aggregator", "A connection ended before its first call.",                 \
      "See ev=grpc for the reason: certificate, clock, a program that speaks no TLS.")             \
    X(hardware, "site", "Device, threads, ranks.", "Nothing.")                                     \
    X(head_dropped, "site", "Multiverse learning left out a head.", "Nothing.")                    \
    X(hello, "aggregator", "A site's first call was answered, or refused.",                        \
      "With a refusal: do what why says.")                                                         \
    X(http, "site, aggregator", "A line of the server of the live page.", "Nothing.")              \
    X(identities_lost, "aggregator",                                                               \
      "The list of identity keys is lost; keys are pinned as seen first.",                         \
      "Put the file back from a backup.")                                                          \
    X(identity_pinned, "aggregator",                                                               \
      "A site's identity key was seen first, and counts from now on.", "Nothing.")                 \
    X(import, "any", "What an import did with names, fields or heads that do not fit.",            \
      "Read it: what starts from run.seed is not the model's.")                                    \
    X(journal_cut, "aggregator", "The end of the journal was damaged and is cut.",                 \
      "Look at the disk. Sites are asked again.")                                                  \
    X(journal_lost, "aggregator",                                                                  \
      "The journal is lost; sites are asked again for the rounds in flight.", "Look at the disk.") \
    X(journal_older, "aggregator",                                                                 \
      "The journal is an older copy, or cut: acts of an operator are lost.",                       \
      "Look at `atoll operator status`, `roster list` and `set --list`, and repeat the acts.")     \
    X(key_refused, "site", "Another site's key for secure aggregation was refused.",               \
      "Read why: a renewed identity, or a wrong aggregator.")                                      \
    X(keys_not_locked, "site, aggregator", "Keys cannot be kept out of swap.",                     \
      "Raise the limit: ulimit -l, LimitMEMLOCK.")                                                 \
    X(keys_not_wiped, "site", "Old keys of secure aggregation could not be removed.",              \
      "Remove the directory's old keys; look at its modes.")                                       \
    X(later_site, "site",                                                                          \
      "This site is none of outer.sites; the aggregator says whether an operator has added it.",   \
      "Nothing, if it was added: `atoll operator roster list`.")                                   \
    X(leave, "site", "The site leaves the run.", "Read why.")                                      \
    X(ledger_closed, "site, aggregator",                                                           \
      "The ledger of bytes could not be written and is closed.",                                   \
      "Make room. The run continues without it.")                                                  \
    X(ledger_not_folded, "site, aggregator", "Old rounds of the ledger could not be summed.",      \
      "Nothing: it is tried again. Look at the disk.")                                             \
    X(left_out, "aggregator", "A directory is left out of a rebuild.",                             \
      "Read why; the others are used.")                                                            \
    X(listening, "aggregator, relay", "The address where the process listens.", "Nothing.")        \
    X(log_skipped, "site, aggregator",                                                             \
      "Lines that were not written while the disk was nearly full.", "Nothing.")                   \
    X(log_skips, "site, aggregator", "The disk is nearly full: lines of the log are left out.",    \
      "Make room.")                                                                                \
    X(lost, "aggregator", "A stored contribution is lost, and asked for again.",                   \
      "Nothing; look at the disk if it repeats.")                                                  \
    X(manifest_lost, "site", "A manifest could not be read, and was fetched again or not.",        \
      "Look at the disk.")                                                                         \
    X(manifests_missing, "aggregator", "Manifests of some rounds are missing.",                    \
      "Copy the folder that is named from a site.")                                                \
    X(marks_lost, "site",                                                                          \
      "Marks of what this site sent are lost: it could send twice what may be sent once.",         \
      "Put the file back from a backup; else start the site as a new one.")                        \
    X(memory, "site", "Planned memory, by use.", "Nothing.")                                       \
    X(memory_private, "site, aggregator",                                                          \
      "The process's memory can be read by other processes of its user.",                          \
      "Read why; allow prctl or set kernel.yama.ptrace_scope.")                                    \
    X(memory_used, "site", "Memory used, and as planned.", "Nothing.")                             \
    X(mixture, "site",                                                                             \
      "Other weights of the mixture than before, or an amendment that does not fit this site's "   \
      "sources.",                                                                                  \
      "With a warning: correct data.train or the amendment.")                                      \
    X(module, "site", "Which layers a rank has (train.modules).", "Nothing.")                      \
    X(moved, "site", "The run continued without this site; it takes the present step.",            \
      "Nothing.")                                                                                  \
    X(no_memory, "aggregator", "Not enough memory for a round; it is tried again.",                \
      "Free memory, or lower serve.receive_mib.")                                                  \
    X(no_reserve, "aggregator", "The file that keeps room for a commit could not be made.",        \
      "Make room on the disk.")                                                                    \
    X(noise, "site", "Noise of former steps is recomputed after a restart.", "Nothing.")           \
    X(offer, "aggregator", "A contribution was offered, or refused.",                              \
      "With a refusal: do what why says.")                                                         \
    X(operator, "aggregator", "An operator's act.", "Nothing.")                                    \
    X(outbox_lost, "site",                                                                         \
      "A stored contribution is damaged; the site recomputes it or skips the round.",              \
      "Look at the disk.")                                                                         \
    X(outer_device, "site", "Where the outer step runs.", "Nothing.")                              \
    X(outer_lr, "site, aggregator", "The outer learning rate, and where it is from.",              \
      "With a warning: set outer.lr as why says.")                                                 \
    X(outer_memory, "site", "Memory of the outer loop.", "Nothing.")                               \
    X(outer_step, "site", "The outer step goes too far: successive deltas are alike.",             \
      "Lower outer.lr, or raise outer.sync_every.")                                                \
    X(page, "site, aggregator", "Address of the live page; or it could not be opened.",            \
      "With a warning: another port in site.http or serve.http.")                                  \
    X(pair_keys, "site", "Pair keys of secure aggregation are agreed.", "Nothing.")                \
    X(path, "site, aggregator",                                                                    \
      "What the link measured of the path, and which connections it chose.",                       \
      "Nothing. `atoll doctor` says what this host limits.")                                       \
    X(payload_lost, "aggregator", "A stored contribution is damaged and is asked for again.",      \
      "Nothing; look at the disk if it repeats.")                                                  \
    X(peer_certificate, "site", "The aggregator's certificate was refused.",                       \
      "Check its name, ca.pem and both clocks.")                                                   \
    X(peer_key, "site", "Another site's identity key: seen first, or renewed.",                    \
      "A renewal without notice: ask that site.")                                                  \
    X(peers_lost, "site", "The list of the other sites' identity keys is missing.",                \
      "Put it back from a copy: without it this site refuses seals.")                              \
    X(plan, "aggregator", "Parameters, memory and bytes of a round, as planned.", "Nothing.")      \
    X(plan_left, "site",                                                                           \
      "Exchanges or steps take more than 25 % longer or shorter than the probe file says.",        \
      "`atoll probe`, then `atoll plan`.")                                                         \
    X(planned, "site", "Predicted and measured times of a round.", "Nothing.")                     \
    X(poll, "aggregator", "A site asks for its next round, or was refused.",                       \
      "With a refusal: do what why says.")                                                         \
    X(privacy, "site", "Noise, clip and what is charged.", "Nothing.")                             \
    X(privacy_cap, "site", "privacy.epsilon_max ends this site before train.steps.",               \
      "Let the owners of the data raise it, or plan for it.")                                      \
    X(privacy_counted, "site",                                                                     \
      "Manifests name more private steps than the list of charges: the difference is charged.",    \
      "Nothing.")                                                                                  \
    X(privacy_ledger, "site", "Runs that share data with this one count in its budget.",           \
      "Read it before the run starts.")                                                            \
    X(privacy_missing, "site",                                                                     \
      "The list of charges is an older copy; the missing steps are charged at the dearest "        \
      "setting.",                                                                                  \
      "If another setting was in force, put the list back from a backup.")                         \
    X(product, "site", "Which cuBLASLt algorithm a matrix product takes, as measured.",            \
      "Nothing.")                                                                                  \
    X(profile, "site", "Time of each class of operations.", "Nothing.")                            \
    X(proxy_stranger, "site",                                                                      \
      "The proxy's connection was taken by another process of this machine; it is closed.",        \
      "See which process it is.")                                                                  \
    X(quarantine, "aggregator", "A site is quarantined: its contributions are not taken.",         \
      "Mend its cause, then `atoll operator readmit`.")                                            \
    X(quorum, "aggregator",                                                                        \
      "With so few sites a majority is all of them: quorum waits like strict.",                    \
      "Add a site, or take strict mode.")                                                          \
    X(rank_lost, "site", "A rank of the site has ended or is silent.",                             \
      "Look at that rank's log; start the site again.")                                            \
    X(readmit, "aggregator", "A site takes part again.", "Nothing.")                               \
    X(rebuild_removed, "aggregator", "A rebuild leaves out a site that the roster has no more.",   \
      "Nothing.")                                                                                  \
    X(rebuild_without, "aggregator", "A rebuild goes without a site's directory.",                 \
      "If that site is answered conflict later, start it with an empty run.dir.")                  \
    X(rebuilding, "aggregator",                                                                    \
      "The aggregator listens, and makes its state from what sites bring.", "Start the sites.")    \
    X(rebuilt, "aggregator", "A fragment's state was rebuilt.", "Nothing.")                        \
    X(receive_slot, "aggregator",                                                                  \
      "A site offered a contribution and sends nothing; its slot goes to the next one.",           \
      "Look at its link.")                                                                         \
    X(receiving, "aggregator", "What is being received, where a round waits for it.",              \
      "Look at the slow site's link.")                                                             \
    X(reconnect, "site, aggregator", "A connection is back after a loss.",                         \
      "Nothing. Often: read cause.")                                                               \
    X(record_dropped, "site, aggregator", "A line of metrics.jsonl could not be written.",         \
      "Make room on the disk.")                                                                    \
    X(refused, "aggregator, relay", "A peer was refused.", "Do what why says.")                    \
    X(relay, "relay", "The relay's counters.", "Nothing.")                                         \
    X(replan, "aggregator", "outer.replan amends outer.sync_every, or cannot.",                    \
      "With why: a faster link, or a smaller codec (`atoll plan`).")                               \
    X(report, "aggregator", "A site reports its end, or was refused.",                             \
      "With a refusal: do what why says.")                                                         \
    X(residual_lost, "site, aggregator",                                                           \
      "The residual of a fragment is lost: what compression had left over.",                       \
      "Nothing: a small part of one round's work.")                                                \
    X(restored, "aggregator", "Stored contributions were read again at a start.", "Nothing.")      \
    X(resume, "site", "What a restart does otherwise than before: another machine, other ranks.",  \
      "Read it.")                                                                                  \
    X(resync, "site", "The site takes the aggregator's state instead of the round's.",             \
      "Nothing. If it repeats: [runbook](runbook.md).")                                            \
    X(revoked_copy, "site, aggregator", "The list of revoked certificates could not be copied.",   \
      "Look at the directory's modes.")                                                            \
    X(revoked_missing, "site, aggregator",                                                         \
      "The list of revoked certificates is gone; the one read last stays in force.",               \
      "Put it back; to admit every peer, leave an empty file.")                                    \
    X(revoked_read, "site, aggregator",                                                            \
      "The list of revoked certificates was read; unknown names are errors.",                      \
      "With unknown: correct the names.")                                                          \
    X(revoked_unreadable, "site, aggregator",                                                      \
      "The list of revoked certificates cannot be read: every peer is refused.", "Mend the file.") \
    X(rollback, "aggregator", "The run goes back to an earlier state, as an operator asked.",      \
      "Nothing.")                                                                                  \
    X(rolled_back, "site", "This site goes back with the run.", "Nothing.")                        \
    X(roster, "site, aggregator", "The list of sites, or a change of it.", "Nothing.")             \
    X(roster_found, "aggregator",                                                                  \
      "The journal is lost: the roster is that of the newest manifests.",                          \
      "`atoll operator roster list`; repeat changes that are missing.")                            \
    X(round, "site", "A round is applied: bytes, times, gain, agreement.",                         \
      "Nothing. [The numbers of a round](runbook.md).")                                            \
    X(round_aborted, "site", "A round was aborted; its work is in the residual.",                  \
      "As for ev=abort at the aggregator.")                                                        \
    X(round_over, "site", "The part of a round after its end by time.", "Nothing.")                \
    X(run_cfg_lost, "aggregator", "run.cfg was written again from the configuration.",             \
      "Look at the disk.")                                                                         \
    X(scrub, "site, aggregator",                                                                   \
      "Stored files were read again; a damaged one was repaired or not.",                          \
      "With repaired=0 do what action says.")                                                      \
    X(seal, "aggregator", "A seal of secure aggregation has its parts.", "Nothing.")               \
    X(seal_lost, "aggregator", "A seal is lost: the round is aborted.", "Look at the disk.")       \
    X(seal_refused, "site",                                                                        \
      "This site refuses a seal: its sum would reveal too much, or a key is wrong.",               \
      "Read why; talk to the coordinator before anything else.")                                   \
    X(seals_missing, "site", "Evidence of what left this site is missing.",                        \
      "Put the records back from a copy; `atoll privacy verify` says which.")                      \
    X(secure, "site, aggregator", "Secure aggregation is on: sites, threshold.", "Nothing.")       \
    X(self_call, "aggregator",                                                                     \
      "The aggregator cannot reach its own port; after several failures it ends.",                 \
      "Look at firewall, descriptors and memory of the host.")                                     \
    X(settings, "site", "A setting that is allowed and hardly meant.", "Read the text.")           \
    X(setup_lost, "aggregator", "The setup of secure aggregation is damaged; sites repeat it.",    \
      "Nothing.")                                                                                  \
    X(share, "aggregator",                                                                         \
      "A site's share of the rounds and tokens; a warning where it is small.",                     \
      "Look at that site: slow link, small site.batch_scale.")                                     \
    X(site_bound, "aggregator", "A site is bound.", "Nothing.")                                    \
    X(site_left, "aggregator", "A site has left.", "Read why.")                                    \
    X(skipped, "site",                                                                             \
      "The site does not contribute to a round: its delta is not finite, or a spike.",             \
      "Look at its loss; lower train.lr if it repeats.")                                           \
    X(snapshot_adopted, "site", "The site has taken a snapshot of the outer state.", "Nothing.")   \
    X(source, "site", "Examples, tokens and epochs of each source.", "Nothing.")                   \
    X(stale, "aggregator", "The directory could not be marked as stale: the disk fails.",          \
      "Do not serve it; [runbook](runbook.md).")                                                   \
    X(standing, "aggregator", "Shares of all sites.", "Nothing.")                                  \
    X(start, "site",                                                                               \
      "Training starts: step, steps, parameters; or from which directory it begins.", "Nothing.")  \
    X(state_damaged, "site, aggregator",                                                           \
      "A stored outer state is damaged; an earlier one is taken.", "Look at the disk.")            \
    X(state_differs, "site", "This site's outer state differs from the manifest's.",               \
      "Keep all files; [runbook](runbook.md).")                                                    \
    X(status, "site, aggregator", "Where the process is, at SIGUSR1 and at its end.", "Nothing.")  \
    X(step_back, "site", "The site goes back one round, as the aggregator asks.", "Nothing.")      \
    X(step_back_refused, "site",                                                                   \
      "The round is final, so the aggregator that asks is the wrong one.", "As for STALE.")        \
    X(stored, "aggregator", "A contribution is durable.", "Nothing.")                              \
    X(supplied, "aggregator", "A site has sent its state for a rebuild.", "Nothing.")              \
    X(supply, "site, aggregator", "A rebuild from the sites: how many have come.",                 \
      "Start the sites that are missing.")                                                         \
    X(supply_failed, "aggregator", "What a site sent for a rebuild could not be stored.",          \
      "Read why.")                                                                                 \
    X(suppressed, "site, aggregator", "Lines of a peer that were not logged.", "Nothing.")         \
    X(task, "site", "Accuracy of a task.", "Nothing.")                                             \
    X(tensorboard, "site", "Event files of TensorBoard could not be written.",                     \
      "Look at run.tensorboard and its disk.")                                                     \
    X(term_lost, "aggregator", "The file of the term is lost; the journal's is taken.",            \
      "Look at the disk.")                                                                         \
    X(term_older, "aggregator", "The file of the term is an older copy; the journal's is taken.",  \
      "See that no second aggregator runs.")                                                       \
    X(term_passed, "site", "The aggregator was started again meanwhile.", "Nothing.")              \
    X(tick, "aggregator", "Time passed in a round.", "Nothing.")                                   \
    X(tokenizer, "site", "An id of the tokenizer's file is not the one that its place gives.",     \
      "Write the file again if the ids are wrong.")                                                \
    X(train_on, "site", "The aggregator is unreachable; the site trains on for some steps.",       \
      "Look at the link.")                                                                         \
    X(unchanged, "site", "Hardly any parameter has changed since the round before (libatoll).",    \
      "Does the optimizer make its step?")                                                         \
    X(unknown_method, "aggregator", "A peer called a method that does not exist.",                 \
      "Another program or version.")                                                               \
    X(unreachable, "relay", "The relay cannot reach the aggregator.",                              \
      "Look at the link from the relay to the aggregator.")                                        \
    X(unreported, "site",                                                                          \
      "All rounds are recorded, and the aggregator has not confirmed that it knows.",              \
      "If it still waits, start this site again: it only reports.")                                \
    X(wait, "site", "What the site waits for.", "Do what the text says.")                          \
    X(waiting, "aggregator", "Whom a round, or the end of the run, waits for.",                    \
      "Look at that site.")

/* Text of an event ("commit" or "ev=commit") or of an error ("DISAGREE"). ERR_CONFIG: there is none
 * of that name. */
enum err event_explain(const char *name, struct arena *a, char **text) MUST;

#endif
