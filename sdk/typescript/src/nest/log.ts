import { Logger } from '@nestjs/common';
import type { LogFields, PluginLog } from '../core/log.js';

/** Logs through the application's own Nest logger: `event message {fields}`. */
export function nestLog(context = 'ConveyorPlugin'): PluginLog {
  const logger = new Logger(context);
  const line = (event: string, message: string, fields?: LogFields) =>
    `${event} ${message}${fields ? ` ${JSON.stringify(fields)}` : ''}`;
  return {
    debug: (...parts) => logger.debug(line(...parts)),
    info: (...parts) => logger.log(line(...parts)),
    warn: (...parts) => logger.warn(line(...parts)),
    error: (...parts) => logger.error(line(...parts)),
  };
}
