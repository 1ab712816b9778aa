import { Injectable, type OnModuleDestroy } from '@nestjs/common';
import { Reporter, type StepIdentity, type StepReport, type Told } from '../core/reporter.js';
import { readSettings } from '../core/settings.js';
import type { ReportSink } from '../core/steps.js';
import { nestLog } from './log.js';

/** Takes the reports of steps: results, partial outputs, heartbeats. */
export type OutputRouter = ReportSink;

/** Sends reports to the control plane over TCP (`CONTROL_PLANE_TCP_HOST:RUNTIME_CONTROL_PLANE_TCP_PORT`). */
@Injectable()
export class TcpControlPlaneOutputRouter implements OutputRouter, OnModuleDestroy {
  private reporter: Reporter | undefined;

  send(step: StepIdentity, report: StepReport, signal?: AbortSignal): Promise<Told> {
    return this.connect().send(step, report, signal);
  }

  deliver(step: StepIdentity, report: StepReport, signal?: AbortSignal): Promise<Told> {
    return this.connect().deliver(step, report, signal);
  }

  onModuleDestroy(): void {
    this.reporter?.close();
  }

  private connect(): Reporter {
    this.reporter ??= reporterFromEnv(process.env);
    return this.reporter;
  }
}

/** A reporter to the control plane that the environment names. */
export function reporterFromEnv(env: NodeJS.ProcessEnv): Reporter {
  const { controlPlane, maxFrame } = readSettings(env);
  return new Reporter({ ...controlPlane, maxFrame, log: nestLog() });
}
