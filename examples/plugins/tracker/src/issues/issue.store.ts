import { Injectable } from '@nestjs/common';

/** A thing to do. */
export interface Issue {
  id: number;
  title: string;
  status: string;
  labels: string[];
}

/** The tracker: issues by its address, in memory. */
@Injectable()
export class IssueStore {
  private readonly trackers = new Map<string, Issue[]>();

  create(baseUrl: string, title: string, labels: string[]): Issue {
    const issues = this.of(baseUrl);
    const issue = { id: issues.length + 1, title, status: 'open', labels };
    issues.push(issue);
    return issue;
  }

  find(baseUrl: string, id: number): Issue | undefined {
    return this.of(baseUrl).find((issue) => issue.id === id);
  }

  list(baseUrl: string, statuses: string[], limit: number): Issue[] {
    return this.of(baseUrl)
      .filter((issue) => statuses.length === 0 || statuses.includes(issue.status))
      .slice(0, limit);
  }

  private of(baseUrl: string): Issue[] {
    const issues = this.trackers.get(baseUrl) ?? [];
    this.trackers.set(baseUrl, issues);
    return issues;
  }
}
